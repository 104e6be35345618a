#include "base/version.h"

#include <tvm/ffi/function.h>

#include "source_digest.h"

namespace collage::sessions {
namespace {

// The version of collage_sessions: raise it when its sessions compute or perform differently.
constexpr int64_t kVersion = 4;

TVM_FFI_STATIC_INIT_BLOCK() { RegisterVersion("collage.sessions", kVersion, kSourceDigest); }

}  // namespace
}  // namespace collage::sessions
