// Attention, softmax(Q K^T scale + mask) V, head by head; each instruction set has its own kernels.
//
// The softmax of a block of rows runs when all its scores are computed, as long as they fit into the cache.
// More keys than that are processed block by block. Earlier sums and results are then scaled to the new
// maximum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once

#include <cstdint>

#include "kernels/elements.h"

namespace collage::kernels {

// What the heads have in common. Strides count elements. The elements of a query and of a value are
// contiguous.
struct AttentionShape {
  int64_t rows, keys;
  // Elements in a query or key, and in a value.
  int64_t size, value_size;
  int64_t query_row;
  // Either the elements of a key are contiguous (key_step is 1), or the elements with the same index of all
  // keys are (key_row is 1).
  int64_t key_row, key_step;
  int64_t value_row, result_row;
  // 0 if all rows share one row of the mask.
  int64_t mask_row;
  float scale;
  // Floats from one row of packed keys to the next, and of packed values: multiples of a vector, at least as
  // long as the row.
  int64_t key_pitch, value_pitch;
  // How many keys are processed together.
  int64_t key_block;
};

// The tensors of one head; the mask's address is null if there is none.
struct AttentionHead {
  Elements query, key, value, mask, result;
};

struct AttentionKernels {
  int lanes;
  // Rows of queries that are processed together.
  int block;

  // Packs keys as [size][key_pitch] and values as [keys][value_pitch].
  void (*pack)(const AttentionShape& shape, const AttentionHead& head, float* keys, float* values);

  // Computes the rows [row, last), at most a block. Scratch: (size + key_block + value_pitch) * block floats.
  void (*attend)(const AttentionShape& shape, const AttentionHead& head, const float* keys,
                 const float* values, float* scratch, int64_t row, int64_t last);
};

}  // namespace collage::kernels
