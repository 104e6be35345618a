// A value on another device of the machine: a copy, or the same memory under another name where devices share
// it.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

namespace collage {
namespace {

using tvm::ffi::Tensor;

// The memory of another tensor, which lives as long as this one.
struct MemoryOf {
  Tensor owner;

  void AllocData(DLTensor* tensor) {
    tensor->data = static_cast<char*>(owner.data_ptr()) + owner.byte_offset();
  }
  void FreeData(DLTensor*) {}
};

// `value` as a tensor of the CPU device `device_id`. All CPU devices have the memory of the machine, so
// nothing is copied between them. Whoever writes to the result writes to `value`.
Tensor ToCpu(Tensor value, int64_t device_id) {
  const DLDevice device{kDLCPU, static_cast<int32_t>(device_id)}, from = value.device();
  if (from.device_type != kDLCPU || !value.IsContiguous()) {
    static const auto copied = tvm::ffi::Function::GetGlobalRequired("vm.builtin.to_device");
    return copied(value, static_cast<int64_t>(device.device_type), device_id).cast<Tensor>();
  }
  if (from.device_id == device.device_id) return value;
  return Tensor::FromNDAlloc(MemoryOf{value}, value.shape(), value.dtype(), device);
}

TVM_FFI_STATIC_INIT_BLOCK() { tvm::ffi::reflection::GlobalDef().def("collage.runtime.to_cpu", ToCpu); }

}  // namespace
}  // namespace collage
