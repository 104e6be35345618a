#include "base/arguments.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>

#include "base/dtype.h"

namespace collage {
namespace {

bool IsContiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr ||
      std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim)
    return true;  // without elements there are no strides to check
  int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

int64_t NumBytes(const DLTensor& tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor.ndim; ++i) elements *= tensor.shape[i];
  return elements * ItemSize(tensor.dtype);
}

[[noreturn]] void Refuse(const Program& program, size_t position, const std::string& reason) {
  TVM_FFI_THROW(ValueError) << program.name << ": argument " << position << " " << reason;
  TVM_FFI_UNREACHABLE();
}

void CheckTensor(const Program& program, size_t position, const DLTensor& tensor, DLDeviceType device) {
  const Buffer& buffer = program.buffers[program.arguments[position]];
  if (tensor.device.device_type != device) {
    Refuse(program, position,
           device == kDLCPU ? "is not in the memory of the CPU" : "is not on the CUDA device");
  }
  if (!SameDType(tensor.dtype, buffer.dtype)) {
    Refuse(program, position, "is " + DTypeName(tensor.dtype) + ", not " + DTypeName(buffer.dtype));
  }
  if (NumBytes(tensor) != buffer.nbytes) {
    Refuse(program, position,
           "has " + std::to_string(NumBytes(tensor)) + " bytes, not " + std::to_string(buffer.nbytes));
  }
  if (!IsContiguous(tensor)) Refuse(program, position, "is not contiguous");
}

}  // namespace

void CheckArguments(const Program& program, tvm::ffi::PackedArgs args, DLDeviceType device,
                    std::byte** pointers) {
  const size_t count = program.arguments.size();
  if (static_cast<size_t>(args.size()) != count) {
    TVM_FFI_THROW(TypeError) << program.name << " takes " << count << " tensors, not " << args.size();
  }
  for (size_t i = 0; i < count; ++i) {
    const std::optional<DLTensor*> tensor = args[static_cast<int>(i)].try_cast<DLTensor*>();
    if (!tensor.has_value()) Refuse(program, i, "is not a tensor");
    CheckTensor(program, i, **tensor, device);
    pointers[i] = static_cast<std::byte*>((*tensor)->data) + (*tensor)->byte_offset;
  }
}

}  // namespace collage
