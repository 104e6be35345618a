// Our modules as bytes: a text in JSON and a blob. What these mean is up to the kind of module.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/optional.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/library_section.h"

namespace collage {

// The constants of a module, unchanged.
struct Blob {
  std::shared_ptr<const std::byte> data;
  size_t nbytes;
};

// Makes a module of its text and blob.
using MakeModule = std::function<tvm::ffi::Module(std::string json, Blob blob)>;

// Registers <kind>.create, ffi.Module.load_from_bytes.<kind>, and `kind` for LoadSaved. <kind>.create takes
// the text, and the blob as bytes, which are copied, or as a tensor of bytes, which is kept.
void RegisterKind(const std::string& kind, MakeModule make);

// What load_from_bytes takes: the length of the text as eight bytes, the text, the blob. Spaces behind the
// text align the blob.
tvm::ffi::Bytes Saved(const std::string& json, const Blob& blob);

// The module with saved bytes in a library, or nothing if `kind` is not registered. Its blob is not copied:
// it is `blob`, which other modules may read too, or else what follows the text in `section`.
tvm::ffi::Optional<tvm::ffi::Module> LoadSaved(const std::string& kind, const LibrarySection& section,
                                               const std::optional<LibrarySection>& blob);

}  // namespace collage
