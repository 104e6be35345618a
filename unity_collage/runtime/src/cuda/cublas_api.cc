#include "cuda/cublas_api.h"

#include <tvm/ffi/error.h>

#include <utility>

#include "base/shared_library.h"

namespace collage::cuda {
namespace {

LtApi Opened() {
  const SharedLibrary library("libcublasLt.so.13");
  LtApi api;
  library.Find("cublasLtGetVersion", &api.get_version);
  library.Find("cublasLtGetStatusName", &api.get_status_name);
  library.Find("cublasLtGetStatusString", &api.get_status_string);
  library.Find("cublasLtCreate", &api.create);
  library.Find("cublasLtMatmul", &api.matmul);
  library.Find("cublasLtMatmulAlgoGetHeuristic", &api.get_heuristic);
  library.Find("cublasLtMatmulAlgoConfigGetAttribute", &api.get_algorithm_config);
  library.Find("cublasLtMatmulDescCreate", &api.create_product);
  library.Find("cublasLtMatmulDescSetAttribute", &api.set_product);
  library.Find("cublasLtMatmulDescDestroy", &api.destroy_product);
  library.Find("cublasLtMatrixLayoutCreate", &api.create_layout);
  library.Find("cublasLtMatrixLayoutSetAttribute", &api.set_layout);
  library.Find("cublasLtMatrixLayoutDestroy", &api.destroy_layout);
  library.Find("cublasLtMatmulPreferenceCreate", &api.create_preference);
  library.Find("cublasLtMatmulPreferenceSetAttribute", &api.set_preference);
  library.Find("cublasLtMatmulPreferenceDestroy", &api.destroy_preference);
  return api;
}

LtHandle Created() {
  LtHandle handle = nullptr;
  CheckLt(Lt().create(&handle), "cublasLtCreate");
  return handle;
}

}  // namespace

const LtApi& Lt() {
  static const LtApi api = Opened();
  return api;
}

void CheckLt(int status, const char* function) {
  if (status == kSuccess) return;
  TVM_FFI_THROW(RuntimeError) << function << " failed: " << Lt().get_status_name(status) << ": "
                              << Lt().get_status_string(status);
}

LtHandle TheLtHandle() {
  static const LtHandle handle =
      Created();  // never destroyed: the driver may have ended before the destructors run
  return handle;
}

LtDescriptor LtDescriptor::Product(int compute_type) {
  LtPointer made = nullptr;
  CheckLt(Lt().create_product(&made, compute_type, kLtFloat32), "cublasLtMatmulDescCreate");
  return LtDescriptor(made, Lt().set_product, "cublasLtMatmulDescSetAttribute", Lt().destroy_product);
}

LtDescriptor LtDescriptor::Layout(int type, int64_t rows, int64_t cols, int64_t leading) {
  LtPointer made = nullptr;
  CheckLt(Lt().create_layout(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), leading),
          "cublasLtMatrixLayoutCreate");
  return LtDescriptor(made, Lt().set_layout, "cublasLtMatrixLayoutSetAttribute", Lt().destroy_layout);
}

LtDescriptor LtDescriptor::Preference() {
  LtPointer made = nullptr;
  CheckLt(Lt().create_preference(&made), "cublasLtMatmulPreferenceCreate");
  return LtDescriptor(made, Lt().set_preference, "cublasLtMatmulPreferenceSetAttribute",
                      Lt().destroy_preference);
}

LtDescriptor::LtDescriptor(LtDescriptor&& other) noexcept
    : pointer_(std::exchange(other.pointer_, nullptr)),
      set_(other.set_),
      set_name_(other.set_name_),
      destroy_(other.destroy_) {}

LtDescriptor::~LtDescriptor() {
  if (pointer_ != nullptr) destroy_(pointer_);
}

}  // namespace collage::cuda
