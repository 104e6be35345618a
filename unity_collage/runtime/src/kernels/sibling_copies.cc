#include "kernels/sibling_copies.h"

#include <tvm/ffi/error.h>

#include <cstring>
#include <string>

#include "base/dtype.h"
#include "base/pool.h"
#include "kernels/step.h"

namespace collage::kernels {
namespace {

// Fewer bytes than this take less time than waking a second thread.
constexpr int64_t kMinParallelBytes = 16 << 10;

void CheckRows(const std::string& name, const View& view) {
  CheckFloatType(name, view);
  if (view.dims.size() != 2 || (view.dims[1] > 1 && view.strides[1] != 1))
    TVM_FFI_THROW(ValueError) << "'" << name << "' is not a matrix with contiguous rows";
}

int64_t RowBytes(const View& view) { return view.dims[1] * ItemSize(view.dtype); }

std::byte* Row(const View& view, std::byte* const* buffers, int64_t row) {
  return buffers[view.buffer] + view.offset + row * view.strides[0] * ItemSize(view.dtype);
}

}  // namespace

SiblingCopies::SiblingCopies(const Step& step, int threads) : threads_(1) {
  int64_t nbytes = 0;
  for (;;) {
    const std::string name = "beside" + std::to_string(copies_.size());
    const auto source = step.args.find(name), result = step.args.find("dst_" + name);
    if (source == step.args.end() && result == step.args.end()) break;
    if (source == step.args.end() || result == step.args.end())
      TVM_FFI_THROW(ValueError) << "'" << name << "' or its result is missing";
    CheckRows(name, source->second);
    CheckRows("dst_" + name, result->second);
    if (source->second.dims != result->second.dims || !SameDType(source->second.dtype, result->second.dtype))
      TVM_FFI_THROW(ValueError) << "'" << name << "' and its result have different dims or types";
    nbytes += source->second.dims[0] * RowBytes(source->second);
    copies_.push_back({source->second, result->second});
  }
  if (nbytes >= kMinParallelBytes) threads_ = threads;
}

// Each thread takes an equal share of the rows of every tensor: the rows with the same index are neighbours
// in the concatenation.
void SiblingCopies::Run(std::byte* const* buffers) const {
  if (copies_.empty()) return;
  ParallelFor(threads_, threads_, [&](int64_t thread) {
    for (const auto& [source, result] : copies_) {
      const int64_t rows = source.dims[0];
      for (int64_t row = rows * thread / threads_; row < rows * (thread + 1) / threads_; ++row)
        std::memcpy(Row(result, buffers, row), Row(source, buffers, row), RowBytes(source));
    }
  });
}

}  // namespace collage::kernels
