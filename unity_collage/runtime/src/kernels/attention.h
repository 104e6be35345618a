// Attention, softmax(Q K^T scale + mask) V, head by head, as each instruction set does it.
//
// All scores of a block of rows are there before the softmax, as long as they fit the cache; keys beyond that
// come block by block, and the sums so far are scaled to the new maximum (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018).
#pragma once

#include <cstdint>

#include "kernels/numbers.h"

namespace collage::kernels {

// What the heads have in common. Strides count numbers; the numbers of one query and one value are neighbours.
struct AttentionShape {
  int64_t rows, keys;
  // Numbers in a query or key, and in a value.
  int64_t size, value_size;
  int64_t query_row;
  // Either the numbers of a key are neighbours (key_step is 1), or keys are (key_row is 1).
  int64_t key_row, key_step;
  int64_t value_row, result_row;
  // 0: one mask for all rows.
  int64_t mask_row;
  float scale;
  // Floats between numbers of a packed key, and between packed values: multiples of a vector, none shorter than
  // what it holds.
  int64_t key_pitch, value_pitch;
  // Keys whose scores are made together.
  int64_t key_block;
};

// Where the tensors of one head begin; no mask is null.
struct AttentionHead {
  Numbers query, key, value, mask, result;
};

struct AttentionKernels {
  int lanes;
  // Rows of queries that are done together.
  int block;

  // Keys as [size][key_pitch] and values as [keys][value_pitch].
  void (*pack)(const AttentionShape& shape, const AttentionHead& head, float* keys, float* values);

  // Results of the rows [row, last), at most a block. Scratch: (size + key_block + value_pitch) * block floats.
  void (*attend)(const AttentionShape& shape, const AttentionHead& head, const float* keys,
                 const float* values, float* scratch, int64_t row, int64_t last);
};

}  // namespace collage::kernels
