// The seal of a saved program: facts about it, its length and a checksum, behind the program in its file.
//
// The dynamic loader trusts a file: a library that was cut or changed ends the process. So the seal is
// verified before a program is loaded. Loaders ignore what follows a library or an archive of object files.
//
// A file is `program, facts (JSON), footer`. The checksum is that of all bytes before it, weights included: a
// changed weight ends nothing, but gives wrong numbers. They are read in pieces, which stay in no process's
// memory, and come into the caches of the system, out of which loading takes nearly all of them.
#pragma once

#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <optional>
#include <string>

namespace collage {

// Why something is not possible; nothing where it is.
using Reason = std::optional<std::string>;

// As a result for other languages.
inline tvm::ffi::Optional<tvm::ffi::String> Told(const Reason& reason) {
  if (!reason.has_value()) return std::nullopt;
  return tvm::ffi::String(*reason);
}

// Appends `facts` and the footer to the program at `path`; throws RuntimeError.
void Seal(const std::string& path, const std::string& facts);

// Why the file at `path` is not a program as it was saved.
Reason WhyNotSealed(const std::string& path);

// The facts in a file that WhyNotSealed has nothing against.
std::string SealedFacts(const std::string& path);

}  // namespace collage
