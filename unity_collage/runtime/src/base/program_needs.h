// What a saved program needs of the processor and of the libraries in its process, as its facts say.
#pragma once

#include <string>

#include "base/seal.h"

namespace collage {

// Why a program with these facts cannot run in this process. Libraries that it needs must be loaded before.
Reason WhyNotHere(const std::string& facts);

// Throws ValueError where the file at `path` is not a program as it was saved, or cannot run in this process.
void CheckProgram(const std::string& path);

}  // namespace collage
