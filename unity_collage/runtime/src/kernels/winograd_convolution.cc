// A step "winograd": how its work is shared among the threads.
#include <tvm/ffi/error.h>

#include <algorithm>

#include "base/shares.h"
#include "kernels/isa.h"
#include "kernels/winograd_weights.h"

namespace collage::kernels {
namespace {

// Tiles of a block: of one thread, few enough that its patches and products stay near the core, and enough
// that weights which come from memory are worth their way; of all threads, so many that it seldom takes two.
constexpr int64_t kBlock = 28, kSharedBlock = 112;
constexpr int64_t kLine = kAlignment / sizeof(float);

const float* Floats(const AlignedBuffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

const WinogradKernels& WinogradOf(const Kernels& kernels, int64_t tile) {
  if (tile != 2 && tile != 4) TVM_FFI_THROW(ValueError) << "there are tiles of 2 and 4, not of " << tile;
  return kernels.winograd[tile / 2 - 1];
}

class WinogradConvolution final : public Convolution {
 public:
  WinogradConvolution(const Program& program, const Step& step, const std::byte* constants, int threads);

  size_t ScratchBytes() const final;
  std::string Description() const final;

 protected:
  void Compute(const Call& call, float* scratch) const final {
    share_phases_ ? RunPhases(call, scratch) : RunBlocks(call, scratch);
  }

 private:
  void ShareWork(int threads);
  TileBlock BlockAt(int64_t begin, int64_t end, float* scratch) const;
  void RunBlocks(const Call& call, float* scratch) const;
  void RunPhases(const Call& call, float* scratch) const;

  const std::string isa_;
  const WinogradKernels& kernels_;
  WinogradShape shape_;
  int64_t tiles_, panels_, blocks_, largest_;
  int threads_;
  // Whether the threads share each phase of a block, or the blocks.
  bool share_phases_;
  AlignedBuffer weights_, zeros_;
};

WinogradConvolution::WinogradConvolution(const Program& program, const Step& step, const std::byte* constants,
                                         int threads)
    : Convolution(program, step, constants, threads),
      isa_(FindKernels(step.attrs.TextOr("isa", "")).isa),
      kernels_(WinogradOf(FindKernels(step.attrs.TextOr("isa", "")), step.attrs.Int("tile"))) {
  const std::vector<int64_t>&source = source_.dims, &result = result_.dims;
  if (weights_view_.dims[1] != source[1])
    TVM_FFI_THROW(ValueError) << "the filters have not the source's channels";
  for (size_t i = 0; i + 1 < fields_.size(); ++i) {
    if (fields_[i].dims[1] % kernels_.lanes != 0)
      TVM_FFI_THROW(ValueError) << "field " << i << " of the source has not whole vectors of channels";
  }
  shape_ = {source[2],
            source[3],
            source[1],
            result[2],
            result[3],
            result[1],
            pad_top_,
            pad_left_,
            Ceil(result[2], kernels_.tile),
            Ceil(result[3], kernels_.tile),
            result_pixel_};
  panels_ = Ceil(shape_.out_channels, kernels_.panel);
  ShareWork(threads);
  weights_ = PackWinogradWeights(filters_, weights_view_, kernels_, threads_);
  zeros_ = Zeros(shape_.channels + kernels_.lanes);
}

// Threads that take whole blocks each read all weights; threads that share a block each read a part of them,
// but the patches and products then travel between cores, which is worth it if the weights are more than
// twice as many.
void WinogradConvolution::ShareWork(int threads) {
  tiles_ = source_.dims[0] * shape_.tile_rows * shape_.tile_cols;
  const int64_t weights = shape_.channels * shape_.out_channels;
  threads_ = tiles_ * kernels_.points() * weights < kWorthSharing ? 1 : threads;
  const int64_t exchanged = tiles_ * (shape_.channels + shape_.out_channels);
  share_phases_ = weights * (threads_ - 1) > 2 * exchanged;
  blocks_ = Ceil(tiles_, share_phases_ ? kSharedBlock : kBlock);
  if (!share_phases_) blocks_ = std::min(tiles_, Ceil(blocks_, threads_) * threads_);
  largest_ = Ceil(tiles_, blocks_);
}

TileBlock WinogradConvolution::BlockAt(int64_t begin, int64_t end, float* scratch) const {
  // An odd number of cache lines between rows, and between points: those at powers of two share cache sets.
  const int64_t row = (Ceil(shape_.channels, kLine) | 1) * kLine;
  const int64_t point = (largest_ * row / kLine | 1) * kLine;
  return {begin, end - begin, scratch, row, point, scratch + kernels_.points() * point};
}

size_t WinogradConvolution::ScratchBytes() const {
  const TileBlock block = BlockAt(0, largest_, nullptr);
  const int64_t products = largest_ * kernels_.points() * panels_ * kernels_.panel;
  const size_t nbytes = RoundUp((kernels_.points() * block.point + products) * sizeof(float));
  return share_phases_ ? nbytes : nbytes * threads_;
}

void WinogradConvolution::RunBlocks(const Call& call, float* scratch) const {
  const int64_t sources = Ceil(shape_.channels, kernels_.lanes),
                results = Ceil(shape_.out_channels, kernels_.lanes);
  const int64_t each = static_cast<int64_t>(ScratchBytes() / sizeof(float)) / threads_;
  const float* weights = Floats(weights_);
  const float* zeros = Floats(zeros_);
  ParallelPieces(static_cast<int>(blocks_), threads_, [&](int64_t i, TeamPlace place) {
    const TileBlock block =
        BlockAt(tiles_ * i / blocks_, tiles_ * (i + 1) / blocks_, scratch + place.index * each);
    kernels_.transform_source(shape_, block, call.fields, call.field_count, zeros, 0, sources);
    kernels_.multiply(shape_, block, weights, 0, kernels_.points() * panels_);
    kernels_.transform_result(shape_, block, call.finish, call.result, 0, results);
  });
}

void WinogradConvolution::RunPhases(const Call& call, float* scratch) const {
  const float* weights = Floats(weights_);
  const float* zeros = Floats(zeros_);
  const auto share = [&](int64_t count, const auto& phase) {
    ParallelRanges(count, threads_, [&](int64_t from, int64_t to, TeamPlace) { phase(from, to); });
  };
  for (int64_t i = 0; i < blocks_; ++i) {
    const TileBlock block = BlockAt(tiles_ * i / blocks_, tiles_ * (i + 1) / blocks_, scratch);
    share(Ceil(shape_.channels, kernels_.lanes), [&](int64_t from, int64_t to) {
      kernels_.transform_source(shape_, block, call.fields, call.field_count, zeros, from, to);
    });
    share(kernels_.points() * panels_,
          [&](int64_t from, int64_t to) { kernels_.multiply(shape_, block, weights, from, to); });
    share(Ceil(shape_.out_channels, kernels_.lanes), [&](int64_t from, int64_t to) {
      kernels_.transform_result(shape_, block, call.finish, call.result, from, to);
    });
  }
}

std::string WinogradConvolution::Description() const {
  const std::string edge = std::to_string(kernels_.tile);
  return "winograd " + edge + "x" + edge + " " + isa_ + ", " + std::to_string(blocks_) + " blocks of " +
         std::to_string(largest_) + " tiles" + (share_phases_ ? ", each by all threads" : "");
}

}  // namespace

std::unique_ptr<PreparedStep> MakeWinograd(const Program& program, const Step& step,
                                           const std::byte* constants, int threads) {
  return std::make_unique<WinogradConvolution>(program, step, constants, threads);
}

}  // namespace collage::kernels
