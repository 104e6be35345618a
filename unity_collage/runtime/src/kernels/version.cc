#include "base/version.h"

#include <tvm/ffi/function.h>

#include "source_digest.h"

namespace collage::kernels {
namespace {

// The version of collage_kernels: raise it when a kernel computes or performs differently.
constexpr int64_t kVersion = 4;

TVM_FFI_STATIC_INIT_BLOCK() { RegisterVersion("collage.kernels", kVersion, kSourceDigest); }

}  // namespace
}  // namespace collage::kernels
