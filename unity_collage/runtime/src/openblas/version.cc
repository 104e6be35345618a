#include "base/version.h"

#include <tvm/ffi/function.h>

#include "source_digest.h"

namespace collage::openblas {
namespace {

// The version of collage_openblas: raise it when its programs compute or perform differently.
constexpr int64_t kVersion = 2;

TVM_FFI_STATIC_INIT_BLOCK() { RegisterVersion("collage.openblas", kVersion, kSourceDigest); }

}  // namespace
}  // namespace collage::openblas
