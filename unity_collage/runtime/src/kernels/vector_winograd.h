// The three phases with the vectors of the including file; see winograd.h.
#pragma once

#include <utility>

#include "kernels/vector_epilogue.h"
#include "kernels/vector_transforms.h"
#include "kernels/winograd.h"

namespace collage::kernels {
namespace {

// A register tile is up to kRows tiles by kVectors vectors of output channels, or twice the tiles by one.
constexpr int kVectors = 2, kPanel = kVectors * kLanes;
// How many floats ahead weights are prefetched: 16 KiB.
constexpr int kPrefetchDistance = 4096;
constexpr int kRows = kLanes == 16 ? 14 : 6;

// The first pixel of a tile of the result.
struct TileOrigin {
  int64_t image, y, x;
};

inline TileOrigin OriginOf(const WinogradShape& shape, int64_t tile, int64_t edge) {
  const int64_t row = tile / shape.tile_cols;
  return {row / shape.tile_rows, row % shape.tile_rows * edge, tile % shape.tile_cols * edge};
}

// to = rows * weights for kTileRows rows and kWide vectors of outputs; all sums stay in registers.
template <int kTileRows, int kWide>
void RegisterTile(const float* rows, int64_t stride, const float* weights, int64_t depth, float* to,
                  int64_t next_row, int64_t next_vector) {
  Vector sums[kTileRows][kWide] = {};
  for (int64_t c = 0; c < depth; ++c) {
    const float* row = weights + c * kWide * kLanes;
    Vector w[kWide];
#pragma GCC unroll 2
    for (int j = 0; j < kWide; ++j) __builtin_prefetch(row + kPrefetchDistance + j * kLanes);
#pragma GCC unroll 2
    for (int j = 0; j < kWide; ++j) w[j] = Load(row + j * kLanes);
#pragma GCC unroll 28
    for (int i = 0; i < kTileRows; ++i) {
      const Vector x = Broadcast(rows[i * stride + c]);
#pragma GCC unroll 2
      for (int j = 0; j < kWide; ++j) sums[i][j] += x * w[j];
    }
  }
#pragma GCC unroll 28
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kWide; ++j) Store(to + j * next_vector + i * next_row, sums[i][j]);
  }
}

using RegisterTileOf = void (*)(const float*, int64_t, const float*, int64_t, float*, int64_t, int64_t);

// The instance of RegisterTile for `rows` rows.
template <int kWide, int... kBefore>
RegisterTileOf RegisterTileFor(int64_t rows, std::integer_sequence<int, kBefore...> /*all*/) {
  static constexpr RegisterTileOf kTiles[] = {RegisterTile<kBefore + 1, kWide>...};
  return kTiles[rows - 1];
}

template <int kTile, int kTaps, int kStride>
struct Winograd {
  using Axis = Transform<kTile, kTaps, kStride>;
  static constexpr int kEdge = (kTile - 1) * kStride + kTaps, kPoints = kEdge * kEdge;
  static constexpr int kAxisFilters = AxisFilters(kTile, kTaps, kStride);
  static constexpr int kFilters = kAxisFilters * kAxisFilters;
  static constexpr PointOrder<kEdge, kAxisFilters> kOrder{};

  // The addresses of the pixels of a patch. For pixels beyond the border they are addresses of zeros.
  template <typename Element>
  static void Pixels(const WinogradShape& shape, int64_t tile, const Element* source, int64_t channels,
                     int64_t shift, const Element* zeros, const Element* (&pixels)[kPoints]) {
    const TileOrigin origin = OriginOf(shape, tile, kTile);
    const Depth& depth = shape.depth;
    const int64_t z = origin.image % depth.result * depth.stride + shift;
    const int64_t image = origin.image / depth.result * depth.source + z;
    const bool deep = z >= 0 && z < depth.source;
    const int64_t top = origin.y * kStride - shape.pad_top, left = origin.x * kStride - shape.pad_left;
    for (int64_t i = 0; i < kEdge; ++i) {
      for (int64_t j = 0; j < kEdge; ++j) {
        const int64_t y = top + i, x = left + j;
        const bool inside = deep && y >= 0 && y < shape.height && x >= 0 && x < shape.width;
        pixels[i * kEdge + j] =
            inside ? source + ((image * shape.height + y) * shape.width + x) * channels : zeros;
      }
    }
  }

  // Transforms one vector of channels of a patch, first its columns, then its rows.
  template <typename Element>
  static inline void TransformPatch(const Element* const (&pixels)[kPoints], int64_t channel, int64_t count,
                                    float* to, int64_t point) {
    Vector half[kPoints];
    for (int j = 0; j < kEdge; ++j) {
      Vector d[kEdge], t[kEdge];
      for (int i = 0; i < kEdge; ++i) d[i] = LoadPartial(pixels[i * kEdge + j] + channel, count);
      Axis::Source(d, t);
      for (int i = 0; i < kEdge; ++i) half[i * kEdge + j] = t[i];
    }
    for (int i = 0; i < kEdge; ++i) {
      Vector d[kEdge], t[kEdge];
      for (int j = 0; j < kEdge; ++j) d[j] = half[i * kEdge + j];
      Axis::Source(d, t);
      for (int j = 0; j < kEdge; ++j) Store(to + (i * kEdge + j) * point, t[j]);
    }
  }

  static void TransformSource(const WinogradShape& shape, const TileBlock& block, const SourceField* fields,
                              int64_t count, const float* zeros, int64_t from, int64_t to) {
    int64_t first = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t channels = fields[i].channels, vectors = (channels + kLanes - 1) / kLanes;
      const int64_t begin = from > first ? from - first : 0, end = Min(to - first, vectors);
      fields[i].elements.As([&](const auto* elements) {
        // All bits of a zero are zero in both types.
        const auto* padding = reinterpret_cast<decltype(elements)>(zeros);
        if (begin < end)
          TransformField(shape, block, elements, fields[i], padding, first * kLanes, begin, end);
      });
      first += vectors;
    }
  }

  // Transforms vectors [from, to) of a field that begins at channel `first` of the source.
  template <typename Element>
  static void TransformField(const WinogradShape& shape, const TileBlock& block, const Element* source,
                             const SourceField& field, const Element* zeros, int64_t first, int64_t from,
                             int64_t to) {
    const int64_t channels = field.channels, whole = Min(to, channels / kLanes);
    for (int64_t tile = 0; tile < block.count; ++tile) {
      const Element* pixels[kPoints];
      Pixels(shape, block.first + tile, source, channels, field.shift, zeros, pixels);
      float* row = block.patches + tile * block.row + first - block.channel;
      for (int64_t v = from; v < whole; ++v)
        TransformPatch(pixels, v * kLanes, kLanes, row + v * kLanes, block.point);
      for (int64_t c = (from > whole ? from : whole) * kLanes; c < Min(to * kLanes, channels); c += kLanes)
        TransformPatch(pixels, c, channels - c, row + c, block.point);
    }
  }

  // One product: its point, its panel of outputs, and the index of its panel of packed weights.
  struct Product {
    int64_t point, panel, weights;
  };

  // Product `unit` in the order of WinogradKernels::multiply.
  static Product ProductOf(int64_t unit, int64_t panels, bool by_panels) {
    if (by_panels) {
      const int64_t at = unit % kPoints, panel = unit / kPoints;
      return {kOrder.point[at], panel, panel * kFilters + kOrder.filter[at]};
    }
    // All points of a filter with the first panel, then with the next.
    const int64_t filter = kOrder.filter[unit / panels];
    int64_t first = unit / panels, count = 1;
    while (first > 0 && kOrder.filter[first - 1] == filter) --first;
    while (first + count < kPoints && kOrder.filter[first + count] == filter) ++count;
    const int64_t within = unit - first * panels, panel = within / count;
    return {kOrder.point[first + within % count], panel, filter * panels + panel};
  }

  static void Multiply(const WinogradShape& shape, const TileBlock& block, const float* weights, int64_t from,
                       int64_t to) {
    shape.panel == kPanel ? MultiplyBy<kVectors>(shape, block, weights, from, to)
                          : MultiplyBy<1>(shape, block, weights, from, to);
  }

  // Computes products with panels of kWide vectors, in register tiles as equal as possible.
  template <int kWide>
  static void MultiplyBy(const WinogradShape& shape, const TileBlock& block, const float* weights,
                         int64_t from, int64_t to) {
    constexpr int64_t kOutputs = kWide * kLanes;
    const int64_t panels = (shape.out_channels + kOutputs - 1) / kOutputs;
    const int64_t depth = shape.channels / shape.groups, outputs = shape.out_channels / shape.groups;
    constexpr int kMaxTileRows = kRows * kVectors / kWide;
    const int64_t steps = (block.count + kMaxTileRows - 1) / kMaxTileRows,
                  next_vector = block.count * kPoints * kLanes;
    for (int64_t unit = from; unit < to; ++unit) {
      const Product product = ProductOf(unit, panels, shape.groups > 1);
      const int64_t point = product.point, panel = product.panel, group = panel * kOutputs / outputs;
      const float* patches = block.patches + point * block.point + group * depth - block.channel;
      float* products = block.products + (panel * kWide - block.vector) * next_vector + point * kLanes;
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t begin = step * block.count / steps, end = (step + 1) * block.count / steps;
        const auto tile =
            RegisterTileFor<kWide>(end - begin, std::make_integer_sequence<int, kMaxTileRows>());
        tile(patches + begin * block.row, block.row, weights + product.weights * depth * kOutputs, depth,
             products + begin * kPoints * kLanes, kPoints * kLanes, next_vector);
      }
    }
  }

  // Transforms the products of a patch to a tile of the result, first columns, then rows.
  static inline void TransformProducts(const float* products, Vector (&pixels)[kTile * kTile]) {
    Vector half[kTile * kEdge];
    for (int j = 0; j < kEdge; ++j) {
      Vector m[kEdge], y[kTile];
      for (int i = 0; i < kEdge; ++i) m[i] = Load(products + (i * kEdge + j) * kLanes);
      Axis::Result(m, y);
      for (int i = 0; i < kTile; ++i) half[i * kEdge + j] = y[i];
    }
    for (int i = 0; i < kTile; ++i) {
      Vector m[kEdge], y[kTile];
      for (int j = 0; j < kEdge; ++j) m[j] = half[i * kEdge + j];
      Axis::Result(m, y);
      for (int j = 0; j < kTile; ++j) pixels[i * kTile + j] = y[j];
    }
  }

  static void TransformResult(const WinogradShape& shape, const TileBlock& block, const Epilogue& epilogue,
                              const Elements& result, int64_t from, int64_t to) {
    for (int64_t tile = 0; tile < block.count; ++tile) {
      const TileOrigin origin = OriginOf(shape, block.first + tile, kTile);
      const int64_t pixel = shape.result_pixel, row = shape.out_width * pixel;
      const int64_t at = (origin.image * shape.out_height + origin.y) * row + origin.x * pixel;
      const int64_t rows = Min(kTile, shape.out_height - origin.y);
      const int64_t cols = Min(kTile, shape.out_width - origin.x);
      for (int64_t v = from; v < to; ++v) {
        const int64_t channel = v * kLanes;
        const ResultRegion region{at + channel, row, pixel, rows, cols, shape.out_channels - channel};
        Vector pixels[kTile * kTile];
        TransformProducts(block.products + ((v - block.vector) * block.count + tile) * kPoints * kLanes,
                          pixels);
        StoreWithEpilogue<kTile * kTile, kTile>(epilogue, region, channel, pixels, result);
      }
    }
  }

  static constexpr WinogradKernels Kernels() {
    return {kTile, kTaps, kStride, kLanes, kPanel, TransformSource, Multiply, TransformResult};
  }
};

constexpr WinogradAlgorithms kWinograd = {
    Winograd<2, 3, 1>::Kernels(), Winograd<4, 3, 1>::Kernels(), Winograd<2, 3, 2>::Kernels(),
    Winograd<4, 3, 2>::Kernels(), Winograd<2, 2, 1>::Kernels(), Winograd<4, 2, 1>::Kernels(),
};

}  // namespace
}  // namespace collage::kernels
