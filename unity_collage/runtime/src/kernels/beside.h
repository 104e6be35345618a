// Tensors that a kernel copies beside its own result, into the other slices of what joins them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/program.h"

namespace collage::kernels {

class Beside {
 public:
  // The pairs "beside0" and "dst_beside0", ... of a step: matrices with contiguous rows, both of one
  // type, float32 or bfloat16, and one shape.
  Beside(const Step& step, int threads);

  // buffers[i] is the first byte of buffer i in this call.
  void Run(std::byte* const* buffers) const;

  size_t size() const { return copies_.size(); }

 private:
  struct Copy {
    View source, result;
  };

  std::vector<Copy> copies_;
  int threads_;
};

}  // namespace collage::kernels
