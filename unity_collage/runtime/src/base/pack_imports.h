// Programs as bytes without a copy of their constants.
#pragma once

#include <string>

#include "base/saved_module.h"

namespace collage {

// Appends `blob` to the bytes of a module, or a mark in its place while this thread packs a program.
void AppendBlob(const Blob& blob, std::string* saved);

}  // namespace collage
