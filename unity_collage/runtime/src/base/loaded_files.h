// Programs by their files: the dynamic loader has a file in memory once, and its functions call those of one
// module.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <optional>
#include <string>

namespace collage {

// The module of the shared library at an absolute `path`. All who load a file share its module. It is freed,
// and the library is unmapped, when nothing refers to it or to a function of it any more.
//
// `state` stands for the content of the file. Nothing if the module is in use, and the file had another state
// when it was loaded.
std::optional<tvm::ffi::Module> LoadedFile(const std::string& path, const std::string& state);

}  // namespace collage
