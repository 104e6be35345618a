// Brings the caches into the state in which a kernel finds them between other kernels of a program.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include "base/aligned_buffer.h"

namespace collage {

class CacheState {
 public:
  explicit CacheState(int64_t evict_bytes);

  // Reads evict_bytes of other memory, which evicts what was not used recently.
  void Evict();

  // Writes the scratch that kernels share, and then each tensor, on all cores, a contiguous part on each. A
  // kernel that divides its work in another way then fetches cache lines from other cores, as it does in a
  // program.
  static void WriteFromAllCores(const tvm::ffi::Array<tvm::ffi::Tensor>& tensors);

 private:
  AlignedBuffer other_;
};

}  // namespace collage
