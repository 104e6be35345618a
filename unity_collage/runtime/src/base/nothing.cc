// A kernel that does nothing: the time of its call is the cost of a launch.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

namespace collage {
namespace {

void Nothing(tvm::ffi::PackedArgs, tvm::ffi::Any*) {}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def_packed("collage.runtime.nothing", Nothing);
}

}  // namespace
}  // namespace collage
