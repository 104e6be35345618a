// The cuDNN backend: kind "collage.cudnn".
#include <tvm/ffi/reflection/registry.h>

#include "base/executable.h"
#include "cuda/cudnn_graph.h"
#include "cuda/device_program.h"

namespace collage::cuda {
namespace {

std::unique_ptr<Executable> Compile(const Program& program, const std::byte* constants) {
  return ForDevice(program, constants, MakeGraph);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  static const Backend backend{"collage.cudnn", Compile, kDLCUDA};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef()
      .def("collage.cudnn.describe", DescribeCudnn)
      .def("collage.cudnn.engines", EnginesOfCudnn);
}

}  // namespace
}  // namespace collage::cuda
