// The cuBLASLt backend: kind "collage.cublas".
#include <tvm/ffi/reflection/registry.h>

#include "base/executable.h"
#include "cuda/cublas_gemm.h"
#include "cuda/device_program.h"

namespace collage::cuda {
namespace {

std::unique_ptr<Executable> Compile(const Program& program, const std::byte* constants) {
  return ForDevice(program, constants, MakeGemm);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  static const Backend backend{"collage.cublas", Compile, kDLCUDA};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef().def("collage.cublas.describe", DescribeCublas);
}

}  // namespace
}  // namespace collage::cuda
