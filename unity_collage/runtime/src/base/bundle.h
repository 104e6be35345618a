// A folder with a program and all libraries that it needs besides those of the system.
#pragma once

#include <string>

namespace collage {

// Loads the libraries of the bundle in `folder`, as its file bundle.json names them, and returns the path of
// its program. Throws RuntimeError with the reason.
std::string OpenBundle(const std::string& folder);

}  // namespace collage
