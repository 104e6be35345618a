// Views of matrices and of batches of them in the terms of cuBLASLt.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/program.h"

namespace collage::cuda {

// The last two dims of a view. cuBLASLt is column-major: to it a matrix with contiguous rows is transposed.
struct Matrix {
  int64_t rows, cols;
  // Whether the columns are contiguous, instead of the rows.
  bool by_columns;
  // Elements from one row to the next, or from one column to the next.
  int64_t leading;

  // How many elements a contiguous row or column has, and how many of them there are.
  int64_t length() const { return by_columns ? rows : cols; }
  int64_t lines() const { return by_columns ? cols : rows; }
};

// Throws, naming the view, when neither rows nor columns are contiguous.
Matrix AsMatrix(const std::string& name, const View& view);

// Throws, naming the view, when the rows are not contiguous.
Matrix AsRows(const std::string& name, const View& view);

// The operands of a product, in the order of `OperandViews`.
enum Operand { kA, kB, kC, kAddend };
constexpr size_t kNumOperands = 4;
const char* OperandName(Operand operand);
using OperandViews = std::array<View, kNumOperands>;
using OperandNumbers = std::array<int64_t, kNumOperands>;

// A dim of a batch: elements from one matrix to the next, 0 where an operand is broadcast.
struct BatchDim {
  int64_t extent;
  OperandNumbers strides;
};

// A batch of products as launches: each is a batch of matrices that are equally far apart.
struct Batch {
  BatchDim inner;
  // The offsets of each launch in elements.
  std::vector<OperandNumbers> launches;
};

// Neighbouring dims are joined where the strides of all operands allow it; the longest dim is the inner one.
// Throws where the dims of an operand do not broadcast to those of c.
Batch AsBatch(const OperandViews& views);

// The largest power of two, at most 256, that divides all of these numbers of bytes.
int64_t Alignment(const std::vector<int64_t>& nbytes);

}  // namespace collage::cuda
