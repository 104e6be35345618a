#include "openblas/layout.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <climits>

namespace collage::openblas {
namespace {

int Narrow(const std::string& name, int64_t value) {
  if (value > INT_MAX) TVM_FFI_THROW(ValueError) << "'" << name << "' is too large for 32-bit BLAS";
  return static_cast<int>(value);
}

}  // namespace

Matrix AsMatrix(const std::string& name, const View& view) {
  const size_t rank = view.dims.size();
  if (rank < 2) TVM_FFI_THROW(ValueError) << "'" << name << "' has fewer than two dims";
  Matrix m{
      view.dims[rank - 2], view.dims[rank - 1], view.strides[rank - 2], view.strides[rank - 1], false, 0};
  // The stride of a dim with one element has no meaning.
  m.transposed = m.col_stride != 1 && m.cols != 1;
  const int64_t length = m.transposed ? m.rows : m.cols;
  const int64_t lines = m.transposed ? m.cols : m.rows;
  const int64_t step = m.transposed ? m.row_stride : m.col_stride;
  const int64_t leading = lines == 1 ? length : (m.transposed ? m.col_stride : m.row_stride);
  if ((length != 1 && step != 1) || leading < length) {
    TVM_FFI_THROW(ValueError) << "'" << name << "' has neither contiguous rows nor contiguous columns";
  }
  Narrow(name, std::max(m.rows, m.cols));
  m.leading = Narrow(name, leading);
  return m;
}

std::vector<int64_t> BatchOffsets(const std::string& name, const View& view,
                                  const std::vector<int64_t>& batch) {
  const size_t own = view.dims.size() - 2;
  if (own > batch.size()) TVM_FFI_THROW(ValueError) << "'" << name << "' has more batch dims than 'c'";
  std::vector<int64_t> offsets = {0};
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t skipped = batch.size() - own;
    const int64_t dim = i < skipped ? 1 : view.dims[i - skipped];
    if (dim != 1 && dim != batch[i])
      TVM_FFI_THROW(ValueError) << "'" << name << "' does not broadcast to 'c'";
    const int64_t stride = dim == 1 ? 0 : view.strides[i - skipped];
    std::vector<int64_t> longer;
    for (const int64_t offset : offsets) {
      for (int64_t k = 0; k < batch[i]; ++k) longer.push_back(offset + k * stride);
    }
    offsets = std::move(longer);
  }
  return offsets;
}

}  // namespace collage::openblas
