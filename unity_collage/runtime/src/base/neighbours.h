// Leaves the caches as the neighbours of a kernel do.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include "base/aligned_buffer.h"

namespace collage {

class Neighbours {
 public:
  explicit Neighbours(int64_t evict_bytes);

  // Pushes out whatever is not used again soon, by reading as much other memory.
  void Evict();

  // Writes the scratch that kernels share, and then each tensor, by all cores, every core a contiguous part. A kernel
  // that divides its work otherwise then fetches lines from other cores, as it will between such neighbours.
  static void Write(const tvm::ffi::Array<tvm::ffi::Tensor>& tensors);

 private:
  AlignedBuffer other_;
};

}  // namespace collage
