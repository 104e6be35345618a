#include "base/version.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "source_digest.h"

namespace collage {
namespace {

// The version of collage_runtime: raise it when programs or the timing loop compute or perform differently.
constexpr int64_t kVersion = 6;

TVM_FFI_STATIC_INIT_BLOCK() { RegisterVersion("collage.runtime", kVersion, kSourceDigest); }

}  // namespace

void RegisterVersion(const std::string& name, int64_t version, const char* source_digest) {
  tvm::ffi::reflection::GlobalDef()
      .def((name + ".version").c_str(), [version] { return version; })
      .def((name + ".source_digest").c_str(), [source_digest] { return tvm::ffi::String(source_digest); });
}

}  // namespace collage
