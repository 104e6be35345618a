// Attention with the vectors of the including file; see attention.h.
//
// Scores are computed transposed, as [keys][rows of a block]. So maxima and sums are taken over whole
// vectors, and both products read contiguous elements of their left factor.
#pragma once

#include "kernels/attention.h"
#include "kernels/vectors.h"

namespace collage::kernels {
namespace {

using SquareTile = Vector[kLanes];

// Transposes a square: exchanges the off-diagonal quarters of each square of 2 * kHalf vectors, down to
// single elements.
template <int kHalf>
inline void TransposeSteps(SquareTile& rows) {
  if constexpr (kHalf > 0) {
    Bits upper, lower;
    for (int lane = 0; lane < kLanes; ++lane) {
      upper[lane] = (lane & kHalf) != 0 ? kLanes + lane - kHalf : lane;
      lower[lane] = (lane & kHalf) != 0 ? kLanes + lane : lane + kHalf;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & kHalf) != 0) continue;
      const Vector a = rows[i], b = rows[i + kHalf];
      rows[i] = __builtin_shuffle(a, b, upper);
      rows[i + kHalf] = __builtin_shuffle(a, b, lower);
    }
    TransposeSteps<kHalf / 2>(rows);
  }
}

// Loads and transposes the square at `from`, of which `rows` rows and `cols` columns exist; the rest is zero.
template <typename Element>
inline void LoadTransposed(const Element* from, int64_t row, int64_t rows, int64_t cols, SquareTile& square) {
  if (rows >= kLanes && cols >= kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) square[i] = Load(from + i * row);
  } else {
    for (int i = 0; i < kLanes; ++i) square[i] = i < rows ? LoadPartial(from + i * row, cols) : Vector{};
  }
  TransposeSteps<kLanes / 2>(square);
}

// to[j][i] = from[i][j] * factor; rows of `to` are padded with zeros to whole vectors.
template <typename Element>
inline void Transpose(const Element* from, int64_t from_row, int64_t rows, int64_t cols, float factor,
                      float* to, int64_t to_row) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t j = 0; j < cols; j += kLanes) {
      SquareTile square;
      LoadTransposed(from + i * from_row + j, from_row, rows - i, cols - j, square);
#pragma GCC unroll 16
      for (int k = 0; k < kLanes; ++k) {
        if (j + k < cols) Store(to + (j + k) * to_row + i, square[k] * factor);
      }
    }
  }
}

// to[i] = from[i]; rows of `to` are padded with zeros to whole vectors.
template <typename Element>
inline void CopyRows(const Element* from, int64_t from_row, int64_t rows, int64_t cols, float* to,
                     int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; j += kLanes)
      Store(to + i * to_row + j, LoadPartial(from + i * from_row + j, cols - j));
  }
}

// e^x for x <= 0, but exactly zero where it is too small for a float: -infinity masks keys.
inline Vector ExpOrZero(Vector x) { return x < Broadcast(-87.0F) ? Vector{} : ExpInside(x); }

struct Attention {
  static constexpr int kRows = kLanes == 16 ? 14 : 6;
  static constexpr int kBlock = 2 * kLanes;

  // to = left^T right [+ to * factors, row by row]; left is [depth][rows], right [depth][kVectors vectors].
  template <int kTileRows, int kVectors>
  static void RegisterTile(int64_t depth, const float* left, int64_t left_row, const float* right,
                           int64_t right_row, const float* factors, float* to, int64_t to_row) {
    Vector sums[kTileRows][kVectors] = {};
    if (factors != nullptr) {
#pragma GCC unroll 14
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sums[i][j] = Load(to + i * to_row + j * kLanes) * factors[i];
      }
    }
    for (int64_t d = 0; d < depth; ++d, left += left_row, right += right_row) {
      Vector y[kVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) y[j] = Load(right + j * kLanes);
#pragma GCC unroll 14
      for (int i = 0; i < kTileRows; ++i) {
        const Vector x = Broadcast(left[i]);
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sums[i][j] += x * y[j];
      }
    }
#pragma GCC unroll 14
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) Store(to + i * to_row + j * kLanes, sums[i][j]);
    }
  }

  using RegisterTileOf = void (*)(int64_t, const float*, int64_t, const float*, int64_t, const float*, float*,
                                  int64_t);

  template <int kVectors>
  static RegisterTileOf RegisterTileFor(int64_t rows) {
    static constexpr RegisterTileOf kTiles[] = {RegisterTile<1, kVectors>,
                                                RegisterTile<2, kVectors>,
                                                RegisterTile<3, kVectors>,
                                                RegisterTile<4, kVectors>,
                                                RegisterTile<5, kVectors>,
                                                RegisterTile<6, kVectors>,
                                                RegisterTile<(kRows < 7 ? 1 : 7), kVectors>,
                                                RegisterTile<(kRows < 8 ? 1 : 8), kVectors>,
                                                RegisterTile<(kRows < 9 ? 1 : 9), kVectors>,
                                                RegisterTile<(kRows < 10 ? 1 : 10), kVectors>,
                                                RegisterTile<(kRows < 11 ? 1 : 11), kVectors>,
                                                RegisterTile<(kRows < 12 ? 1 : 12), kVectors>,
                                                RegisterTile<(kRows < 13 ? 1 : 13), kVectors>,
                                                RegisterTile<(kRows < 14 ? 1 : 14), kVectors>};
    return kTiles[rows - 1];
  }

  // The same product for any number of rows, in tiles as equal as possible.
  template <int kVectors>
  static void Product(int64_t rows, int64_t depth, const float* left, int64_t left_row, const float* right,
                      int64_t right_row, const float* factors, float* to, int64_t to_row) {
    const int64_t tiles = (rows + kRows - 1) / kRows;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t i = tile * rows / tiles, end = (tile + 1) * rows / tiles;
      RegisterTileFor<kVectors>(end - i)(depth, left + i, left_row, right, right_row,
                                         factors == nullptr ? nullptr : factors + i, to + i * to_row, to_row);
    }
  }

  template <typename Element>
  static void AddMask(const Element* mask, int64_t mask_row, int64_t rows, int64_t keys, int64_t width,
                      float* scores) {
    for (int64_t key = 0; key < keys; key += kLanes) {
      for (int64_t i = 0; i < rows; i += kLanes) {
        SquareTile square;
        LoadTransposed(mask + i * mask_row + key, mask_row, rows - i, keys - key, square);
        for (int64_t k = 0; k < Min(kLanes, keys - key); ++k) {
          float* at = scores + (key + k) * width + i;
          Store(at, Load(at) + square[k]);
        }
      }
    }
  }

  static int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
  static Vector Max(Vector a, Vector b) { return a > b ? a : b; }

  static Vector Maximum(const float* scores, int64_t keys, int64_t width) {
    constexpr int kChains = 4;
    Vector maxima[kChains];
    for (Vector& maximum : maxima) maximum = Load(scores);
    int64_t key = 0;
    for (; key + kChains <= keys; key += kChains) {
      for (int k = 0; k < kChains; ++k) maxima[k] = Max(maxima[k], Load(scores + (key + k) * width));
    }
    for (; key < keys; ++key) maxima[0] = Max(maxima[0], Load(scores + key * width));
    return Max(Max(maxima[0], maxima[1]), Max(maxima[2], maxima[3]));
  }

  // For each row of a block: the maximum and the sum so far, and the factor that scales earlier results.
  struct Rows {
    float maxima[kBlock], sums[kBlock], factors[kBlock];
  };

  // Replaces scores by e^(score - maximum), for one vector of rows.
  static void Exponentials(float* scores, int64_t keys, int64_t width, bool first, int64_t at, Rows& rows) {
    const Vector infinity = Broadcast(__builtin_inff());
    Vector maximum = Maximum(scores, keys, width), sum{};
    if (!first) {
      const Vector before = Load(rows.maxima + at);
      maximum = Max(maximum, before);
      const Vector factor = before == maximum ? Broadcast(1.0F) : ExpOrZero(before - maximum);
      Store(rows.factors + at, factor);
      sum = Load(rows.sums + at) * factor;
    }
    Store(rows.maxima + at, maximum);
    // If all keys of a row are masked so far, its maximum is -infinity, and subtracting that would give NaN.
    const Vector base = maximum == -infinity ? Vector{} : maximum;
    for (int64_t key = 0; key < keys; ++key) {
      const Vector e = ExpOrZero(Load(scores + key * width) - base);
      Store(scores + key * width, e);
      sum += e;
    }
    Store(rows.sums + at, sum);
  }

  template <int kVectors>
  static void AttendBlock(const AttentionShape& shape, const AttentionHead& head, const float* keys,
                          const float* values, float* scratch, int64_t row, int64_t last) {
    constexpr int64_t kWidth = kVectors * kLanes;
    const int64_t count = last - row, columns = shape.value_pitch;
    float *queries = scratch, *scores = queries + shape.size * kWidth,
          *results = scores + shape.key_block * kWidth;
    Rows rows;
    head.result.As([&](const auto* to) {
      for (int64_t i = row; i < last; ++i) {
        for (int64_t c = 0; c < shape.value_size; c += 16)
          __builtin_prefetch(to + i * shape.result_row + c, 1);
      }
    });
    head.query.As([&](const auto* from) {
      Transpose(from + row * shape.query_row, shape.query_row, count, shape.size, shape.scale, queries,
                kWidth);
    });
    for (int64_t key = 0; key < shape.keys; key += shape.key_block) {
      const int64_t block_keys = Min(shape.key_block, shape.keys - key);
      Product<kVectors>(block_keys, shape.size, keys + key, shape.key_pitch, queries, kWidth, nullptr, scores,
                        kWidth);
      if (head.mask.data != nullptr) {
        head.mask.As([&](const auto* mask) {
          AddMask(mask + row * shape.mask_row + key, shape.mask_row, count, block_keys, kWidth, scores);
        });
      }
      for (int64_t j = 0; j < kVectors; ++j)
        Exponentials(scores + j * kLanes, block_keys, kWidth, key == 0, j * kLanes, rows);
      const float *factors = key == 0 ? nullptr : rows.factors, *from = values + key * columns;
      int64_t c = 0;
      for (; c + 2 * kLanes <= columns; c += 2 * kLanes)
        Product<2>(count, block_keys, scores, kWidth, from + c, columns, factors, results + c, columns);
      if (c < columns)
        Product<1>(count, block_keys, scores, kWidth, from + c, columns, factors, results + c, columns);
    }
    head.result.As([&](auto* to) {
      for (int64_t i = 0; i < count; ++i) {
        const float factor = 1.0F / rows.sums[i];
        for (int64_t c = 0; c < shape.value_size; c += kLanes)
          StorePartial(to + (row + i) * shape.result_row + c, Load(results + i * columns + c) * factor,
                       shape.value_size - c);
      }
    });
  }

  static void Attend(const AttentionShape& shape, const AttentionHead& head, const float* keys,
                     const float* values, float* scratch, int64_t row, int64_t last) {
    (last - row > kLanes ? AttendBlock<2> : AttendBlock<1>)(shape, head, keys, values, scratch, row, last);
  }

  static void Pack(const AttentionShape& shape, const AttentionHead& head, float* keys, float* values) {
    head.key.As([&](const auto* from) {
      if (shape.key_step == 1)
        Transpose(from, shape.key_row, shape.keys, shape.size, 1.0F, keys, shape.key_pitch);
      else
        CopyRows(from, shape.key_step, shape.size, shape.keys, keys, shape.key_pitch);
    });
    head.value.As([&](const auto* from) {
      CopyRows(from, shape.value_row, shape.keys, shape.value_size, values, shape.value_pitch);
    });
  }

  static constexpr AttentionKernels Kernels() { return {kLanes, kBlock, Pack, Attend}; }
};

}  // namespace
}  // namespace collage::kernels
