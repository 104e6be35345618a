#include "base/version.h"

#include <tvm/ffi/function.h>

#include "source_digest.h"

namespace collage::cuda {
namespace {

// The version of collage_cuda: raise it when its programs compute or perform differently.
constexpr int64_t kVersion = 1;

TVM_FFI_STATIC_INIT_BLOCK() { RegisterVersion("collage.cuda", kVersion, kSourceDigest); }

}  // namespace
}  // namespace collage::cuda
