// The sibling copies of a concatenation: a kernel writes its result into one slice of it, and copies the
// other inputs into the other slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/program.h"

namespace collage::kernels {

class SiblingCopies {
 public:
  // The arguments "beside0" and "dst_beside0", ... of a step: pairs of matrices with contiguous rows, of
  // equal shape and type (float32 or bfloat16).
  SiblingCopies(const Step& step, int threads);

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
