#include "cuda/probe_kernels.h"

#include <tvm/ffi/error.h>

#include "base/shared_library.h"

namespace collage::cuda {
namespace {

// The driver compiles this for its device. %globaltimer counts nanoseconds.
constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry collage_wait(.param .u64 nanoseconds) {
  .reg .pred %more;
  .reg .u64 %begin, %now, %passed, %wanted;
  ld.param.u64 %wanted, [nanoseconds];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %begin;
  setp.lt.u64 %more, %passed, %wanted;
  @%more bra again;
  ret;
}
.visible .entry collage_nothing() {
  ret;
}
)";

struct Probes {
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_nbytes, Stream stream, void** parameters, void** extra);
  void* wait = nullptr;
  void* nothing = nullptr;

  void Launch(void* function, void** parameters, Stream stream) const {
    const int status = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    if (status != 0) TVM_FFI_THROW(RuntimeError) << "cuLaunchKernel failed with status " << status;
  }
};

Probes Loaded() {
  Check(Runtime().free(nullptr), "making the context of the device");
  const SharedLibrary driver("libcuda.so.1");
  int (*load)(void** module, const void* image) = nullptr;
  int (*find)(void** function, void* module, const char* name) = nullptr;
  Probes probes;
  driver.Find("cuModuleLoadData", &load);
  driver.Find("cuModuleGetFunction", &find);
  driver.Find("cuLaunchKernel", &probes.launch);
  void* module = nullptr;
  int status = load(&module, kPtx);
  if (status == 0) status = find(&probes.wait, module, "collage_wait");
  if (status == 0) status = find(&probes.nothing, module, "collage_nothing");
  if (status != 0) TVM_FFI_THROW(RuntimeError) << "the driver cannot load our kernels: status " << status;
  return probes;
}

const Probes& TheProbes() {
  static const Probes probes = Loaded();
  return probes;
}

}  // namespace

void LaunchWait(uint64_t nanoseconds, Stream stream) {
  void* parameters[] = {&nanoseconds};
  TheProbes().Launch(TheProbes().wait, parameters, stream);
}

void LaunchNothing(Stream stream) { TheProbes().Launch(TheProbes().nothing, nullptr, stream); }

}  // namespace collage::cuda
