// Convolutions of 3x3 with small groups: a vector holds outputs of several groups, or a part of one.
#pragma once

#include <cstdint>

#include "kernels/epilogue.h"

namespace collage::kernels {

// One convolution, with as many output channels as input channels. Sources are N, H, W, C without gaps.
// Results are N, H, W, C; there may be gaps between their pixels.
struct GroupedShape {
  int64_t height, width, channels;
  int64_t out_height, out_width;
  int64_t pad_top, pad_left;
  // Channels in a group: 2, 4, 8 or a multiple of 16.
  int64_t group;
  // Elements from one pixel of the result to the next.
  int64_t result_pixel;
};

struct GroupedKernels {
  int lanes;

  // Computes rows [row, last_row), counted through the results of all images, of the vectors [from, to) of
  // channels. The layout of the weights is [vectors][rows of a filter][inputs of a group][columns of a
  // filter][lanes]. `zeros` holds a zero for each channel.
  using Rows = void (*)(const GroupedShape& shape, const Elements& source, const float* weights,
                        const float* zeros, const Epilogue& epilogue, const Elements& result, int64_t row,
                        int64_t last_row, int64_t from, int64_t to);

  // The kernel for `group` channels in a group and a stride of 1 or 2.
  Rows (*rows)(int64_t group, int64_t stride);
};

}  // namespace collage::kernels
