// Convolutions of 3x3 whose groups are small: a vector holds the output channels of several groups, or a part
// of one.
#pragma once

#include <cstdint>

#include "kernels/finish.h"

namespace collage::kernels {

// One convolution, of as many output channels as input channels. Sources are N, H, W, C, dense; so are
// results, but for what may lie between their pixels.
struct GroupedShape {
  int64_t height, width, channels;
  int64_t out_height, out_width;
  int64_t pad_top, pad_left;
  // Channels in a group: 2, 4, 8 or a multiple of 16.
  int64_t group;
  // Numbers from one pixel of the result to the next.
  int64_t result_pixel;
};

struct GroupedKernels {
  int lanes;

  // Rows [row, last_row) of the results of all images, vectors [from, to) of the channels. Weights lie as
  // [vectors][rows of a filter][inputs of a group][columns of a filter][lanes]; `zeros` holds as many as
  // there are channels.
  using Rows = void (*)(const GroupedShape& shape, const Numbers& source, const float* weights,
                        const float* zeros, const Finish& finish, const Numbers& result, int64_t row,
                        int64_t last_row, int64_t from, int64_t to);

  // The kernel for so many channels in a group and a stride of 1 or 2.
  Rows (*rows)(int64_t group, int64_t stride);
};

}  // namespace collage::kernels
