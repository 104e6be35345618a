// The seal of a saved program: facts about it, its length and a checksum, behind the program in its file.
//
// The dynamic loader trusts a file: a library that was cut or changed ends the process. So the seal is
// verified before a program is loaded. Loaders ignore what follows a library or an archive of object files.
//
// A file is `program, facts (JSON), footer`. The checksum covers all bytes before it. Weights are included: a
// changed weight does not end the process, but gives wrong numbers. The file is read in pieces, so it does
// not stay in the memory of the process. It is then in the caches of the system, from which loading takes
// nearly all of it.
#pragma once

#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <optional>
#include <string>

namespace collage {

// Why something is not possible; nothing where it is.
using Reason = std::optional<std::string>;

// A reason as a result for other languages.
inline tvm::ffi::Optional<tvm::ffi::String> Told(const Reason& reason) {
  if (!reason.has_value()) return std::nullopt;
  return tvm::ffi::String(*reason);
}

// Appends `facts` and the footer to the program at `path`; throws RuntimeError.
void Seal(const std::string& path, const std::string& facts);

// Why the file at `path` is not a program as it was saved.
Reason WhyNotSealed(const std::string& path);

// The length and the footer of a sealed file, which has a checksum; of another file its length and last
// bytes.
std::string SealOf(const std::string& path);

// The facts in a file for which WhyNotSealed returns nothing.
std::string SealedFacts(const std::string& path);

}  // namespace collage
