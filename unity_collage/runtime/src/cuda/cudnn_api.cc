#include "cuda/cudnn_api.h"

#include <tvm/ffi/error.h>

#include "base/shared_library.h"

namespace collage::cuda {
namespace {

DnnApi Opened() {
  const SharedLibrary library("libcudnn.so.9");
  DnnApi api;
  library.Find("cudnnGetVersion", &api.get_version);
  library.Find("cudnnGetErrorString", &api.get_error_string);
  library.Find("cudnnGetLastErrorString", &api.get_last_error_string);
  library.Find("cudnnCreate", &api.create);
  library.Find("cudnnSetStream", &api.set_stream);
  library.Find("cudnnBackendCreateDescriptor", &api.create_descriptor);
  library.Find("cudnnBackendDestroyDescriptor", &api.destroy_descriptor);
  library.Find("cudnnBackendFinalize", &api.finalize);
  library.Find("cudnnBackendSetAttribute", &api.set_attribute);
  library.Find("cudnnBackendGetAttribute", &api.get_attribute);
  library.Find("cudnnBackendExecute", &api.execute);
  return api;
}

}  // namespace

const DnnApi& Dnn() {
  static const DnnApi api = Opened();
  return api;
}

void CheckDnn(int status, const char* what) {
  if (status == 0) return;
  char message[512] = "";
  Dnn().get_last_error_string(message, sizeof(message));
  TVM_FFI_THROW(RuntimeError) << what << ": " << Dnn().get_error_string(status)
                              << (message[0] == '\0' ? "" : " (") << message
                              << (message[0] == '\0' ? "" : ")");
}

}  // namespace collage::cuda
