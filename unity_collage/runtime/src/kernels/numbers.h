// Numbers in memory: float32, or bfloat16, the upper half of one. Arithmetic is float32 in any case.
#pragma once

#include <cstdint>

namespace collage::kernels {

struct Bfloat16 {
  uint16_t bits;
};

// Where numbers begin, and whether they are bfloat16.
struct Numbers {
  void* data;
  bool narrow;

  // Calls body with a pointer of the type that they have.
  template <typename Body>
  void As(const Body& body) const {
    if (narrow) {
      body(static_cast<Bfloat16*>(data));
    } else {
      body(static_cast<float*>(data));
    }
  }
};

// How many images a volume of the source and of the result has; windows are `stride` images apart.
struct Depth {
  int64_t source = 1, result = 1, stride = 1;
};

// Some of the channels of an image as a tensor of their own; of a volume, what one tap along its depth reads.
struct SourceField {
  Numbers numbers;
  int64_t channels;
  // The image of a volume that the tap meets for the first result, negative where that is padding.
  int64_t shift;
};

}  // namespace collage::kernels
