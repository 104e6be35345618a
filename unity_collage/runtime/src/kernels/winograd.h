// Winograd convolutions with tiles of 2x2 and 4x4, in three phases; each instruction set has its own kernels.
//
// A tile of the result depends on a patch of the source that is larger by the filter (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2015). Three phases compute a block of tiles: all patches
// are transformed; they are multiplied by the transformed weights, where each point of a patch is a product
// [tiles x channels] by [channels x out_channels]; and the products are transformed back. Each group has its
// own products.
//
// With a stride of 2 a row of the source is split into its even and its odd elements (Yepez and Ko, "Stride 2
// 1-D, 2-D, and 3-D Winograd for Convolutional Neural Networks", 2020). The even elements are multiplied by
// the outer two of three taps, which is F(m, 2). The odd elements are multiplied by the middle tap: they need
// no transform, and all have the same filter.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/elements.h"
#include "kernels/epilogue.h"

namespace collage::kernels {

// One convolution. Sources are N, H, W, C without gaps. Results are N, H, W, C; there may be gaps between
// their pixels. A volume is as many images as it is deep, and each tap along its depth reads its own fields.
struct WinogradShape {
  int64_t height, width, channels;
  int64_t out_height, out_width, out_channels;
  Depth depth;
  // channels and out_channels count all groups. If there are several, each has whole vectors of both.
  int64_t groups;
  // Output channels in a panel of weights: one vector of them, or WinogradKernels::panel. A panel belongs to
  // one group.
  int64_t panel;
  int64_t pad_top, pad_left;
  // Rows and columns of tiles in a result.
  int64_t tile_rows, tile_cols;
  // Elements from one pixel of the result to the next: out_channels, or more in a slice of a wider tensor.
  int64_t result_pixel;
};

// Tiles [first, first + count), counted through all images, of some or all groups, and their scratch.
struct TileBlock {
  int64_t first, count;
  // The first channel, and the first vector of output channels.
  int64_t channel, vector;
  // Transformed patches, [points][count][channels]; a row takes `row` floats, a point `point` floats.
  float* patches;
  int64_t row, point;
  // The products, [vectors of out_channels][count][points][lanes].
  float* products;
};

// The number of distinct transforms of a filter along one axis.
constexpr int AxisFilters(int tile, int taps, int stride) { return stride == 1 ? tile + taps - 1 : tile + 2; }

// The phases of one algorithm with one instruction set. Ranges are [from, to).
struct WinogradKernels {
  // Edge of a tile, taps of a filter along an axis, and stride.
  int tile, taps, stride;
  // Floats in a vector, and output channels in a wide panel of weights.
  int lanes, panel;

  int edge() const { return (tile - 1) * stride + taps; }
  // Points of a patch, and how many distinct filters they are multiplied by.
  int points() const { return edge() * edge(); }
  int axis_filters() const { return AxisFilters(tile, taps, stride); }
  int filters() const { return axis_filters() * axis_filters(); }

  // Transforms the patches of a block: vectors [from, to) of the channels, counted through `count` fields, of
  // which all but the last have whole vectors. `zeros` holds a zero for each channel and one vector more.
  void (*transform_source)(const WinogradShape& shape, const TileBlock& block, const SourceField* fields,
                           int64_t count, const float* zeros, int64_t from, int64_t to);
  // Computes products [from, to) of a block; a product is of one point and one panel of weights. They are
  // ordered by filter, panel and point, or, if there are several groups, by panel, filter and point.
  void (*multiply)(const WinogradShape& shape, const TileBlock& block, const float* weights, int64_t from,
                   int64_t to);
  // Transforms the products of a block back and stores them: vectors [from, to) of the output channels.
  void (*transform_result)(const WinogradShape& shape, const TileBlock& block, const Epilogue& epilogue,
                           const Elements& result, int64_t from, int64_t to);
};

// All algorithms.
using WinogradAlgorithms = std::array<WinogradKernels, 6>;

}  // namespace collage::kernels
