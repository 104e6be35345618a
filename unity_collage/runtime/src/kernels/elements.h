// Elements in memory: float32 or bfloat16, which is the upper half of a float32. Arithmetic is in float32.
#pragma once

#include <cstdint>

namespace collage::kernels {

struct Bfloat16 {
  uint16_t bits;
};

// The address of elements of either type.
struct Elements {
  void* data;
  bool is_bfloat16;

  // Calls body with a pointer of the elements' type.
  template <typename Body>
  void As(const Body& body) const {
    if (is_bfloat16) {
      body(static_cast<Bfloat16*>(data));
    } else {
      body(static_cast<float*>(data));
    }
  }
};

// How many images deep a volume of the source and of the result is; windows are `stride` images apart.
struct Depth {
  int64_t source = 1, result = 1, stride = 1;
};

// A part of the channels that a convolution reads, as a tensor of its own: one input of a concatenation, or,
// of volumes, what one tap along the depth reads.
struct SourceField {
  Elements elements;
  int64_t channels;
  // The image of a volume that the tap reads for the first result; it is negative in the padding.
  int64_t shift;
};

}  // namespace collage::kernels
