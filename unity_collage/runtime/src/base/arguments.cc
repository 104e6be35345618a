#include "base/arguments.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>

#include "base/dtype.h"

namespace collage {
namespace {

bool IsContiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr ||
      std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim)
    return true;  // the strides of a tensor without elements do not matter
  int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

[[noreturn]] void Refuse(const std::string& name, size_t position, const std::string& reason) {
  TVM_FFI_THROW(ValueError) << name << ": argument " << position << " " << reason;
  TVM_FFI_UNREACHABLE();
}

DLTensor* TensorOn(DLDeviceType device, const std::string& name, size_t position,
                   const tvm::ffi::AnyView& argument) {
  const std::optional<DLTensor*> tensor = argument.try_cast<DLTensor*>();
  if (!tensor.has_value()) Refuse(name, position, "is not a tensor");
  if ((*tensor)->device.device_type != device) {
    Refuse(name, position,
           device == kDLCPU ? "is not in the memory of the CPU" : "is not on the CUDA device");
  }
  if (!IsContiguous(**tensor)) Refuse(name, position, "is not contiguous");
  return *tensor;
}

void CheckTensor(const Program& program, size_t position, const DLTensor& tensor) {
  const Buffer& buffer = program.buffers[program.arguments[position]];
  if (!SameDType(tensor.dtype, buffer.dtype)) {
    Refuse(program.name, position, "is " + DTypeName(tensor.dtype) + ", not " + DTypeName(buffer.dtype));
  }
  if (NumBytes(tensor) != buffer.nbytes) {
    Refuse(program.name, position,
           "has " + std::to_string(NumBytes(tensor)) + " bytes, not " + std::to_string(buffer.nbytes));
  }
}

}  // namespace

void CheckArguments(const Program& program, tvm::ffi::PackedArgs args, DLDeviceType device,
                    std::byte** pointers) {
  const size_t count = program.arguments.size();
  if (static_cast<size_t>(args.size()) != count) {
    TVM_FFI_THROW(TypeError) << program.name << " takes " << count << " tensors, not " << args.size();
  }
  for (size_t i = 0; i < count; ++i) {
    const DLTensor* tensor = TensorOn(device, program.name, i, args[static_cast<int>(i)]);
    CheckTensor(program, i, *tensor);
    pointers[i] = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  }
}

DLTensor* DenseTensor(const std::string& name, size_t position, const tvm::ffi::AnyView& argument) {
  return TensorOn(kDLCPU, name, position, argument);
}

int64_t NumBytes(const DLTensor& tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor.ndim; ++i) elements *= tensor.shape[i];
  return elements * ItemSize(tensor.dtype);
}

}  // namespace collage
