// Tensors in memory that something else owns.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace collage {

// A dense tensor of the host whose data is `data`; the tensor keeps it.
inline tvm::ffi::Tensor Borrowed(std::shared_ptr<const std::byte> data, tvm::ffi::ShapeView shape,
                                 DLDataType dtype) {
  struct Memory {
    std::shared_ptr<const std::byte> owner;

    void AllocData(DLTensor* tensor) { tensor->data = const_cast<std::byte*>(owner.get()); }
    void FreeData(DLTensor* /*tensor*/) {}
  };
  return tvm::ffi::Tensor::FromNDAlloc(Memory{std::move(data)}, shape, dtype, DLDevice{kDLCPU, 0});
}

}  // namespace collage
