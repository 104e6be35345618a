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

// Some of the channels of an image as a tensor of their own.
struct SourceField {
  Numbers numbers;
  int64_t channels;
};

}  // namespace collage::kernels
