// Grouped convolutions with the vectors of the including file; see grouped.h.
#pragma once

#include <type_traits>

#include "kernels/grouped.h"
#include "kernels/vector_epilogue.h"

namespace collage::kernels {
namespace {

// Broadcasts element `from` of each group of kGroup lanes to the lanes of the group.
template <int kGroup>
inline Vector BroadcastInGroups(Vector x, int from) {
  Bits lanes;
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane / kGroup * kGroup + from;
  return __builtin_shuffle(x, lanes);
}

// kGroup: channels in a group if several groups fit a vector, else 0. Element: the type of the source.
template <int kGroup, int kStride, typename Element>
struct Grouped {
  // How many results of a row are computed together: their sums fill the registers.
  static constexpr int kNarrowTile = 7, kWideTile = kLanes == 16 ? 14 : 7;

  // The addresses of the source's pixels for some results of a row. Beyond the border they are addresses of
  // zeros.
  template <int kPixels>
  struct Window {
    static constexpr int kColumns = (kPixels - 1) * kStride + 3;
    const Element* pixels[3][kColumns];

    Window(const GroupedShape& shape, const Element* image, const Element* zeros, int64_t top, int64_t left) {
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t y = top + i;
        const Element* row = image + y * shape.width * shape.channels;
        const bool inside = y >= 0 && y < shape.height;
        for (int64_t j = 0; j < kColumns; ++j) {
          const int64_t x = left + j;
          pixels[i][j] = inside && x >= 0 && x < shape.width ? row + x * shape.channels : zeros;
        }
      }
    }
  };

  // Adds the products of input channel `input` of each group and one row of the filters.
  template <int kPixels>
  static inline void AddProducts(const Element* const (&pixels)[Window<kPixels>::kColumns], int64_t channel,
                                 int input, const float* weights, Vector (&sums)[kPixels]) {
    const Vector w[3] = {Load(weights), Load(weights + kLanes), Load(weights + 2 * kLanes)};
#pragma GCC unroll 32
    for (int column = 0; column < Window<kPixels>::kColumns; ++column) {
      Vector x;
      if constexpr (kGroup == 0) {
        x = LoadBroadcast(pixels[column] + channel + input);
      } else {
        x = BroadcastInGroups<kGroup>(Load(pixels[column] + channel), input);
      }
#pragma GCC unroll 3
      for (int tap = 0; tap < 3; ++tap) {
        if (column >= tap && (column - tap) % kStride == 0 && (column - tap) / kStride < kPixels)
          sums[(column - tap) / kStride] += x * w[tap];
      }
    }
  }

  // The sums for one vector of channels.
  template <int kPixels>
  static inline void Convolve(const Window<kPixels>& window, const GroupedShape& shape, int64_t vector,
                              const float* weights, Vector (&sums)[kPixels]) {
    const int64_t channel = vector * kLanes;
    weights += channel * 9 * shape.group;
    for (int row = 0; row < 3; ++row) {
      if constexpr (kGroup == 0) {
        const int64_t first = channel / shape.group * shape.group;
        for (int input = 0; input < shape.group; ++input, weights += 3 * kLanes)
          AddProducts<kPixels>(window.pixels[row], first, input, weights, sums);
      } else {
        // Unrolled, so that the permutations are constants.
#pragma GCC unroll 8
        for (int input = 0; input < kGroup; ++input, weights += 3 * kLanes)
          AddProducts<kPixels>(window.pixels[row], channel, input, weights, sums);
      }
    }
  }

  template <int kPixels>
  static void Pixels(const GroupedShape& shape, const Element* source, const float* weights,
                     const Element* zeros, const Epilogue& epilogue, const Elements& result, int64_t row,
                     int64_t column, int64_t from, int64_t to) {
    const Element* image = source + row / shape.out_height * shape.height * shape.width * shape.channels;
    const int64_t top = row % shape.out_height * kStride - shape.pad_top,
                  left = column * kStride - shape.pad_left;
    const Window<kPixels> window(shape, image, zeros, top, left);
    for (int64_t v = from; v < to; ++v) {
      Vector sums[kPixels] = {};
      Convolve(window, shape, v, weights, sums);
      const ResultRegion region{(row * shape.out_width + column) * shape.result_pixel + v * kLanes,
                                0,
                                shape.result_pixel,
                                1,
                                Min(kPixels, shape.out_width - column),
                                kLanes};
      StoreWithEpilogue<kPixels, kPixels>(epilogue, region, v * kLanes, sums, result);
    }
  }

  static void Rows(const GroupedShape& shape, const Element* source, const float* weights,
                   const Element* zeros, const Epilogue& epilogue, const Elements& result, int64_t row,
                   int64_t last_row, int64_t from, int64_t to) {
    for (; row < last_row; ++row) {
      for (int64_t column = 0; column < shape.out_width;) {
        const bool wide = shape.out_width - column > kNarrowTile;
        (wide ? Pixels<kWideTile> : Pixels<kNarrowTile>)(shape, source, weights, zeros, epilogue, result, row,
                                                         column, from, to);
        column += wide ? kWideTile : kNarrowTile;
      }
    }
  }
};

template <int kGroup, int kStride>
inline void RowsOfAny(const GroupedShape& shape, const Elements& source, const float* weights,
                      const float* zeros, const Epilogue& epilogue, const Elements& result, int64_t row,
                      int64_t last_row, int64_t from, int64_t to) {
  const auto run = [&](auto* elements) {
    using Element = std::remove_pointer_t<decltype(elements)>;
    // All bits of a zero are zero in both types.
    Grouped<kGroup, kStride, Element>::Rows(shape, elements, weights, reinterpret_cast<const Element*>(zeros),
                                            epilogue, result, row, last_row, from, to);
  };
  source.As(run);
}

template <int kStride>
inline GroupedKernels::Rows GroupedRowsOf(int64_t group) {
  if (group == 2) return RowsOfAny<2, kStride>;
  if (group == 4 && kLanes > 4) return RowsOfAny<(kLanes > 4 ? 4 : 0), kStride>;
  if (group == 8 && kLanes > 8) return RowsOfAny<(kLanes > 8 ? 8 : 0), kStride>;
  return RowsOfAny<0, kStride>;
}

inline GroupedKernels::Rows GroupedRows(int64_t group, int64_t stride) {
  return stride == 1 ? GroupedRowsOf<1>(group) : GroupedRowsOf<2>(group);
}

}  // namespace
}  // namespace collage::kernels
