// Views of matrices in BLAS's terms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/program.h"

namespace collage::openblas {

// The last two dims of a view: element (i, j) is at i * row_stride + j * col_stride.
struct Matrix {
  int64_t rows, cols;
  int64_t row_stride, col_stride;
  // For BLAS: row-major with a leading dimension, of the transposed matrix where `transposed` is set.
  bool transposed;
  int leading;
};

// Throws, naming the view, when neither rows nor columns are contiguous.
Matrix AsMatrix(const std::string& name, const View& view);

// Offsets in elements of each matrix of a batch; dims of `view` before the last two broadcast to `batch`.
std::vector<int64_t> BatchOffsets(const std::string& name, const View& view,
                                  const std::vector<int64_t>& batch);

}  // namespace collage::openblas
