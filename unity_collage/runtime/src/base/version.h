// The version of a library, for the fingerprint of a measured cost.
#pragma once

#include <cstdint>
#include <string>

namespace collage {

// Registers <name>.version and <name>.source_digest. `version` is declared in the sources of the library; the
// digest is that of the sources, computed by the build.
void RegisterVersion(const std::string& name, int64_t version, const char* source_digest);

}  // namespace collage
