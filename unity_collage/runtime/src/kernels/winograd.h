// Winograd convolutions with tiles of 2x2 and 4x4 in three phases, as each instruction set does them.
//
// A tile of the result comes from a patch of the source that is wider by the filter (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2015). All patches are transformed, multiplied with the
// transformed weights, point by point of the patch a product of [tiles x channels] and [channels x
// out_channels], and transformed back. Of several groups each has products of its own.
//
// With a stride of 2 a row is two: numbers of even places meet the outer taps of a filter of three, those
// between them the middle one (Yepez and Ko, "Stride 2 1-D, 2-D, and 3-D Winograd for Convolutional Neural
// Networks", 2020). The former are F(m, 2), the latter need no transform, and all of them meet one filter.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/finish.h"
#include "kernels/numbers.h"

namespace collage::kernels {

// One convolution. Sources are N, H, W, C, dense; so are results, but for what may lie between their pixels.
// A volume is as many images as it is deep, and each tap along its depth reads fields of its own.
struct WinogradShape {
  int64_t height, width, channels;
  int64_t out_height, out_width, out_channels;
  Depth depth;
  // Of all of which channels and out_channels are; those of several are whole vectors.
  int64_t groups;
  // Output channels in a panel of weights, which is of one group: one vector of them, or `panel` of the
  // kernels.
  int64_t panel;
  int64_t pad_top, pad_left;
  // Tiles of a result: rows and columns of them.
  int64_t tile_rows, tile_cols;
  // Numbers from one pixel of the result to the next: out_channels, or more in a slice of a wider tensor.
  int64_t result_pixel;
};

// Tiles [first, first + count) of all images, all channels or some groups of them, and the scratch that they
// need.
struct TileBlock {
  int64_t first, count;
  // The first channel, and the first vector of output channels.
  int64_t channel, vector;
  // [points][count][channels], transformed patches; a row is `row` long, a point `point` long.
  float* patches;
  int64_t row, point;
  // [vectors of out_channels][count][points][lanes], the products.
  float* products;
};

// Transforms of a filter along one axis that differ.
constexpr int AxisFilters(int tile, int taps, int stride) { return stride == 1 ? tile + taps - 1 : tile + 2; }

// The phases of one algorithm with one instruction set. Ranges are [from, to).
struct WinogradKernels {
  // Edge of a tile, taps of a filter along an axis, and stride.
  int tile, taps, stride;
  // Floats in a vector, and output channels in a wide panel of weights.
  int lanes, panel;

  int edge() const { return (tile - 1) * stride + taps; }
  // Of a patch, and how many different filters they meet.
  int points() const { return edge() * edge(); }
  int axis_filters() const { return AxisFilters(tile, taps, stride); }
  int filters() const { return axis_filters() * axis_filters(); }

  // Patches of a block, vectors [from, to) of the channels of `count` fields one behind another, all but the
  // last of whole vectors; `zeros` holds a vector more zeros than there are channels.
  void (*transform_source)(const WinogradShape& shape, const TileBlock& block, const SourceField* fields,
                           int64_t count, const float* zeros, int64_t from, int64_t to);
  // Products of a block; a unit is a panel of weights at one point, those that read the same weights one
  // after the other; panels are innermost, of several groups outermost.
  void (*multiply)(const WinogradShape& shape, const TileBlock& block, const float* weights, int64_t from,
                   int64_t to);
  // Results of a block, vectors [from, to) of the output channels.
  void (*transform_result)(const WinogradShape& shape, const TileBlock& block, const Finish& finish,
                           const Numbers& result, int64_t from, int64_t to);
};

// All algorithms.
using WinogradAlgorithms = std::array<WinogradKernels, 6>;

}  // namespace collage::kernels
