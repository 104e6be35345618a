#include "cuda/runtime_api.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "base/shared_library.h"

namespace collage::cuda {
namespace {

RuntimeApi Opened() {
  const SharedLibrary library("libcudart.so.13");
  RuntimeApi api;
  library.Find("cudaMalloc", &api.malloc);
  library.Find("cudaFree", &api.free);
  library.Find("cudaMemcpyAsync", &api.memcpy_async);
  library.Find("cudaMemsetAsync", &api.memset_async);
  library.Find("cudaStreamCreateWithFlags", &api.stream_create);
  library.Find("cudaStreamDestroy", &api.stream_destroy);
  library.Find("cudaStreamSynchronize", &api.stream_synchronize);
  library.Find("cudaStreamBeginCapture", &api.stream_begin_capture);
  library.Find("cudaStreamEndCapture", &api.stream_end_capture);
  library.Find("cudaStreamGetCaptureInfo", &api.stream_get_capture_info);
  library.Find("cudaThreadExchangeStreamCaptureMode", &api.thread_exchange_capture_mode);
  library.Find("cudaGraphInstantiateWithFlags", &api.graph_instantiate);
  library.Find("cudaGraphLaunch", &api.graph_launch);
  library.Find("cudaGraphDestroy", &api.graph_destroy);
  library.Find("cudaGraphExecDestroy", &api.graph_exec_destroy);
  library.Find("cudaEventCreate", &api.event_create);
  library.Find("cudaEventDestroy", &api.event_destroy);
  library.Find("cudaEventRecord", &api.event_record);
  library.Find("cudaEventSynchronize", &api.event_synchronize);
  library.Find("cudaEventElapsedTime", &api.event_elapsed_time);
  library.Find("cudaGetDevice", &api.get_device);
  library.Find("cudaGetLastError", &api.get_last_error);
  library.Find("cudaGetErrorName", &api.get_error_name);
  library.Find("cudaGetErrorString", &api.get_error_string);
  return api;
}

}  // namespace

const RuntimeApi& Runtime() {
  static const RuntimeApi api = Opened();
  return api;
}

void Check(int status, const char* what) {
  if (status == kSuccess) return;
  Runtime().get_last_error();  // an error that is not sticky is not reported again by another call
  TVM_FFI_THROW(RuntimeError) << what << " failed: " << Runtime().get_error_name(status) << ": "
                              << Runtime().get_error_string(status);
}

Stream CurrentStream() {
  int device = 0;
  Check(Runtime().get_device(&device), "cudaGetDevice");
  return TVMFFIEnvGetStream(kDLCUDA, device);
}

}  // namespace collage::cuda
