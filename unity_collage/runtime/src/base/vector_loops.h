// Loops that do nothing but keep the arithmetic units or the paths to memory busy, with the widest vectors there are.
#pragma once

#include <cstdint>

namespace collage {

struct VectorLoops {
  // Runs so many rounds of independent float32 multiply-adds; returns the number of operations, two for each.
  int64_t (*multiply_add)(int64_t rounds);
  // Reads every byte of an aligned range, a multiple of kBlock long.
  void (*read)(const float* data, int64_t nbytes);
  // Writes every byte of such a range.
  void (*write)(float* data, int64_t nbytes);

  static constexpr int64_t kBlock = 512;
};

// Those for the widest vectors of this processor.
const VectorLoops& BestVectorLoops();

}  // namespace collage
