// Loops that saturate the arithmetic units or the memory, with the widest vectors of the processor.
#pragma once

#include <cstdint>

namespace collage {

struct VectorLoops {
  // Runs `rounds` rounds of independent float32 multiply-adds. Returns the number of floating-point
  // operations, two for each multiply-add.
  int64_t (*multiply_add)(int64_t rounds);
  // Reads every byte of an aligned range, a multiple of kBlock long.
  void (*read)(const float* data, int64_t nbytes);
  // Writes every byte of such a range.
  void (*write)(float* data, int64_t nbytes);

  static constexpr int64_t kBlock = 512;
};

// The loops for the widest vectors of this processor.
const VectorLoops& BestVectorLoops();

}  // namespace collage
