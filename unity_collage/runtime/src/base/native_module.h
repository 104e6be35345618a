// Modules of native backends.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/optional.h>

#include <string>

#include "base/library_section.h"

namespace collage {

// The module of a native backend whose saved bytes are in a library; its constants stay there. Nothing if
// `kind` is not that of a backend that is loaded.
tvm::ffi::Optional<tvm::ffi::Module> LoadNativeModule(const std::string& kind, const LibrarySection& section);

}  // namespace collage
