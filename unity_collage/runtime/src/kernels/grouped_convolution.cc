// A step "grouped": packs its weights and divides its rows and channels among the threads.
#include <tvm/ffi/error.h>

#include <algorithm>

#include "base/work_stealing.h"
#include "kernels/convolution.h"
#include "kernels/isa.h"

namespace collage::kernels {
namespace {

// The weights of a chunk of channels are read again for each row, so they should stay in the L1 cache.
constexpr int64_t kChunkBytes = 24 << 10;

class GroupedConvolution final : public Convolution {
 public:
  GroupedConvolution(const Program& program, const Step& step, const std::byte* constants, int threads);

  size_t ScratchBytes() const final { return 0; }
  std::string Description() const final {
    return "grouped " + std::to_string(shape_.group) + " " + isa_ + ", chunks of " + std::to_string(chunk_) +
           " vectors";
  }

 protected:
  void Compute(const Call& call, float* scratch) const final;

 private:
  void CheckShape() const;
  AlignedBuffer PackedWeights(const float* filters) const;

  std::string isa_;
  GroupedShape shape_;
  int64_t stride_, lanes_, vectors_, chunk_;
  int threads_;
  GroupedKernels::Rows rows_;
  std::shared_ptr<const AlignedBuffer> weights_;
  AlignedBuffer zeros_;
};

GroupedConvolution::GroupedConvolution(const Program& program, const Step& step, const std::byte* constants,
                                       int threads)
    : Convolution(program, step, constants, threads), stride_(step.attrs.Int("stride")) {
  const Kernels& kernels = FindKernels(step.attrs.TextOr("isa", ""));
  if (fields_.size() != 1) TVM_FFI_THROW(ValueError) << "grouped filters read one field";
  const std::vector<int64_t>&source = source_.dims, &result = result_.dims;
  isa_ = kernels.isa;
  lanes_ = kernels.grouped.lanes;
  shape_ = {source[2],    source[3], source[1], result[2],
            result[3],    pad_top_,  pad_left_, weights_view_.dims[1],
            result_pixel_};
  CheckShape();
  rows_ = kernels.grouped.rows(shape_.group, stride_);
  vectors_ = shape_.channels / lanes_;
  const int64_t floats = 9 * shape_.group * lanes_;
  const int64_t fitting = std::max<int64_t>(1, kChunkBytes / (floats * static_cast<int64_t>(sizeof(float))));
  chunk_ = Ceil(vectors_, Ceil(vectors_, fitting));
  threads_ = result[0] * result[2] * result[3] * vectors_ * floats < kMinParallelWork ? 1 : threads;
  weights_ = PackedFilters("grouped " + std::to_string(lanes_),
                           [this](const float* filters) { return PackedWeights(filters); });
  zeros_ = Zeros(shape_.channels);
}

void GroupedConvolution::CheckShape() const {
  const int64_t group = shape_.group;
  if (result_.dims[1] != shape_.channels || shape_.channels % 16 != 0 || shape_.channels % group != 0)
    TVM_FFI_THROW(ValueError)
        << "source and result do not have equal numbers of channels, in vectors of 16 and in whole groups";
  if (group != 2 && group != 4 && group != 8 && group % 16 != 0)
    TVM_FFI_THROW(ValueError) << "there are groups of 2, 4, 8 and multiples of 16 channels, not of " << group;
  if (weights_view_.dims.size() != 4)
    TVM_FFI_THROW(ValueError) << "grouped filters are for images, not for volumes";
  if (taps_ != 3) TVM_FFI_THROW(ValueError) << "grouped filters are 3x3, not " << taps_ << "x" << taps_;
  if (stride_ != 1 && stride_ != 2) TVM_FFI_THROW(ValueError) << "the stride is 1 or 2, not " << stride_;
}

AlignedBuffer GroupedConvolution::PackedWeights(const float* filters) const {
  AlignedBuffer packed(vectors_ * 9 * shape_.group * lanes_ * sizeof(float));
  float* to = reinterpret_cast<float*>(packed.data());
  const std::vector<int64_t>& strides = weights_view_.strides;
  for (int64_t vector = 0; vector < vectors_; ++vector) {
    for (int64_t at = 0; at < 9 * shape_.group; ++at) {
      const int64_t i = at / 3 / shape_.group, input = at / 3 % shape_.group, j = at % 3;
      const float* from = filters + input * strides[1] + i * strides[2] + j * strides[3];
      for (int64_t lane = 0; lane < lanes_; ++lane) *to++ = from[(vector * lanes_ + lane) * strides[0]];
    }
  }
  return packed;
}

// The ranges count rows through all chunks of channels, so a thread computes its rows of one chunk before
// those of the next.
void GroupedConvolution::Compute(const Call& call, float* /*scratch*/) const {
  const int64_t rows = result_.dims[0] * shape_.out_height, all = rows * Ceil(vectors_, chunk_);
  const float* weights = reinterpret_cast<const float*>(weights_->data());
  const float* zeros = reinterpret_cast<const float*>(zeros_.data());
  ParallelRanges(all, threads_, [&](int64_t at, int64_t end, TeamRank) {
    while (at < end) {
      const int64_t first = at / rows * chunk_, row = at % rows, last = std::min(rows, row + end - at);
      rows_(shape_, call.fields[0].elements, weights, zeros, call.epilogue, call.result, row, last, first,
            std::min(vectors_, first + chunk_));
      at += last - row;
    }
  });
}

}  // namespace

std::unique_ptr<PreparedStep> MakeGrouped(const Program& program, const Step& step,
                                          const std::byte* constants, int threads) {
  return std::make_unique<GroupedConvolution>(program, step, constants, threads);
}

}  // namespace collage::kernels
