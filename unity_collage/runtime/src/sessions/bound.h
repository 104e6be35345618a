// The tensors that a runtime's request is bound to, so that equal tensors are not bound again.
#pragma once

#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace collage::sessions {

inline void* DataOf(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

class Bound {
 public:
  explicit Bound(size_t count) : tensors_(count) {}

  // Notes that position `i` is bound to `tensor`. Returns whether it was bound to other memory, another type
  // or another shape before.
  bool Changes(size_t i, const DLTensor& tensor) {
    Tensor& bound = tensors_[i];
    void* data = DataOf(tensor);
    if (bound.is_bound && bound.data == data && SameDType(bound.dtype, tensor.dtype) &&
        static_cast<int>(bound.shape.size()) == tensor.ndim &&
        std::equal(bound.shape.begin(), bound.shape.end(), tensor.shape)) {
      return false;
    }
    bound = {true, data, tensor.dtype, {tensor.shape, tensor.shape + tensor.ndim}};
    return true;
  }

  // From here on it is not known what any position is bound to.
  void Forget() {
    for (Tensor& bound : tensors_) bound.is_bound = false;
  }

 private:
  struct Tensor {
    bool is_bound = false;
    void* data = nullptr;
    DLDataType dtype = {};
    std::vector<int64_t> shape;
  };
  std::vector<Tensor> tensors_;
};

}  // namespace collage::sessions
