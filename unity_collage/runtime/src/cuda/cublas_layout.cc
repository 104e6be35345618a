#include "cuda/cublas_layout.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <utility>

namespace collage::cuda {
namespace {

// The alignment of the device's memory, in bytes.
constexpr int64_t kMostAligned = 256;

// The stride of batch dim `axis` of `rank` in a view that may have fewer dims, or dims of 1.
int64_t BatchStride(Operand operand, const View& view, size_t axis, size_t rank, int64_t extent) {
  const size_t own = view.dims.size() - 2;
  if (own > rank)
    TVM_FFI_THROW(ValueError) << "'" << OperandName(operand) << "' has more batch dims than 'c'";
  if (axis < rank - own) return 0;
  const size_t at = axis - (rank - own);
  if (view.dims[at] == 1) return 0;
  if (view.dims[at] != extent)
    TVM_FFI_THROW(ValueError) << "'" << OperandName(operand) << "' does not broadcast to 'c'";
  return view.strides[at];
}

bool AreJoined(const BatchDim& outer, const BatchDim& inner) {
  for (size_t i = 0; i < kNumOperands; ++i) {
    if (outer.strides[i] != inner.extent * inner.strides[i]) return false;
  }
  return true;
}

std::vector<BatchDim> JoinedDims(const OperandViews& views) {
  const size_t rank = views[kC].dims.size() - 2;
  std::vector<BatchDim> dims;
  for (size_t axis = 0; axis < rank; ++axis) {
    BatchDim dim{views[kC].dims[axis], {}};
    for (size_t i = 0; i < kNumOperands; ++i) {
      dim.strides[i] = BatchStride(static_cast<Operand>(i), views[i], axis, rank, dim.extent);
    }
    if (dim.extent == 1) continue;
    if (!dims.empty() && AreJoined(dims.back(), dim)) {
      dim.extent *= dims.back().extent;
      dims.back() = dim;
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

// The rows or the columns of a matrix.
struct Lines {
  int64_t count, length, leading;
  bool are_contiguous;
};

// `count` lines, `step` elements apart, of `length` elements, which are `inner` apart. The stride of a dim of
// one element has no meaning.
Lines AsLines(int64_t count, int64_t step, int64_t length, int64_t inner) {
  const int64_t leading = count == 1 ? length : step;
  return Lines{count, length, leading, (length == 1 || inner == 1) && leading >= length};
}

Lines RowsOf(const std::string& name, const View& view) {
  const size_t rank = view.dims.size();
  if (rank < 2) TVM_FFI_THROW(ValueError) << "'" << name << "' has fewer than two dims";
  return AsLines(view.dims[rank - 2], view.strides[rank - 2], view.dims[rank - 1], view.strides[rank - 1]);
}

Lines ColumnsOf(const View& view) {
  const size_t rank = view.dims.size();
  return AsLines(view.dims[rank - 1], view.strides[rank - 1], view.dims[rank - 2], view.strides[rank - 2]);
}

}  // namespace

const char* OperandName(Operand operand) {
  constexpr std::array<const char*, kNumOperands> names = {"a", "b", "c", "addend"};
  return names[operand];
}

Matrix AsMatrix(const std::string& name, const View& view) {
  const Lines rows = RowsOf(name, view), columns = ColumnsOf(view);
  if (!rows.are_contiguous && !columns.are_contiguous) {
    TVM_FFI_THROW(ValueError) << "'" << name << "' has neither contiguous rows nor contiguous columns";
  }
  // A vector is one long line: libraries load it in wide pieces.
  const bool by_columns = columns.are_contiguous && (!rows.are_contiguous || columns.count == 1);
  return Matrix{rows.count, columns.count, by_columns, by_columns ? columns.leading : rows.leading};
}

Matrix AsRows(const std::string& name, const View& view) {
  const Lines rows = RowsOf(name, view);
  if (!rows.are_contiguous) TVM_FFI_THROW(ValueError) << "the rows of '" << name << "' are not contiguous";
  return Matrix{rows.count, rows.length, false, rows.leading};
}

Batch AsBatch(const OperandViews& views) {
  std::vector<BatchDim> dims = JoinedDims(views);
  Batch batch{BatchDim{1, {}}, {OperandNumbers{}}};
  if (dims.empty()) return batch;
  const auto longest = std::max_element(
      dims.begin(), dims.end(), [](const BatchDim& x, const BatchDim& y) { return x.extent < y.extent; });
  batch.inner = *longest;
  dims.erase(longest);
  for (const BatchDim& dim : dims) {
    std::vector<OperandNumbers> longer;
    for (const OperandNumbers& offsets : batch.launches) {
      for (int64_t k = 0; k < dim.extent; ++k) {
        longer.push_back(offsets);
        for (size_t i = 0; i < kNumOperands; ++i) longer.back()[i] += k * dim.strides[i];
      }
    }
    batch.launches = std::move(longer);
  }
  return batch;
}

int64_t Alignment(const std::vector<int64_t>& nbytes) {
  int64_t alignment = kMostAligned;
  for (const int64_t number : nbytes) {
    while (number % alignment != 0) alignment /= 2;
  }
  return alignment;
}

}  // namespace collage::cuda
