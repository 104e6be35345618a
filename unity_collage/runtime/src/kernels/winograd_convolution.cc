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
// With more points than these half as many.
constexpr int64_t kManyPoints = 36;
// Channels of several groups that one thread does at a time, so that patches and products stay near the core.
constexpr int64_t kChunk = 64;
// An odd number of vectors of results up to this is done vector by vector: in pairs one more would be
// computed.
constexpr int64_t kNarrow = 3;
constexpr int64_t kLine = kAlignment / sizeof(float);

const float* Floats(const AlignedBuffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

const WinogradKernels& WinogradOf(const Kernels& kernels, int64_t tile, int64_t taps, int64_t stride) {
  for (const WinogradKernels& one : kernels.winograd) {
    if (one.tile == tile && one.taps == taps && one.stride == stride) return one;
  }
  TVM_FFI_THROW(ValueError) << "there are no tiles of " << tile << " for filters of " << taps << "x" << taps
                            << " with a stride of " << stride;
  TVM_FFI_UNREACHABLE();
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
  void CheckShape() const;
  void ShareWork(int threads);
  int64_t HeldOf(int64_t channels) const;
  TileBlock BlockAt(int64_t begin, int64_t end, int64_t group, float* scratch) const;
  void RunBlocks(const Call& call, float* scratch) const;
  void RunPhases(const Call& call, float* scratch) const;

  const std::string isa_;
  const WinogradKernels& kernels_;
  WinogradShape shape_;
  int64_t tiles_, panels_, blocks_, largest_;
  // Of how many runs of groups one block is done after the other.
  int64_t chunks_ = 1;
  int threads_;
  // Whether the threads share each phase of a block, or the blocks.
  bool share_phases_;
  AlignedBuffer weights_, zeros_;
};

WinogradConvolution::WinogradConvolution(const Program& program, const Step& step, const std::byte* constants,
                                         int threads)
    : Convolution(program, step, constants, threads),
      isa_(FindKernels(step.attrs.TextOr("isa", "")).isa),
      kernels_(WinogradOf(FindKernels(isa_), step.attrs.Int("tile"), taps_, step.attrs.IntOr("stride", 1))) {
  const std::vector<int64_t>&source = source_.dims, &result = result_.dims;
  shape_ = {source[2],
            source[3],
            source[1] * depth_taps_,
            result[2],
            result[3],
            result[1],
            depth_,
            step.attrs.IntOr("groups", 1),
            kernels_.panel,
            pad_top_,
            pad_left_,
            Ceil(result[2], kernels_.tile),
            Ceil(result[3], kernels_.tile),
            result_pixel_};
  CheckShape();
  const int64_t vectors = Ceil(shape_.out_channels / shape_.groups, kernels_.lanes);
  if (vectors % 2 != 0 && (shape_.groups > 1 || vectors <= kNarrow)) shape_.panel = kernels_.lanes;
  panels_ = Ceil(shape_.out_channels, shape_.panel);
  ShareWork(threads);
  weights_ =
      PackWinogradWeights(filters_, weights_view_, kernels_, shape_.panel, shape_.groups > 1, threads_);
  zeros_ = Zeros(shape_.channels + kernels_.lanes);
}

void WinogradConvolution::CheckShape() const {
  const int64_t groups = shape_.groups, lanes = kernels_.lanes;
  if (groups < 1 || weights_view_.dims[1] * groups != source_.dims[1])
    TVM_FFI_THROW(ValueError) << "the filters have not the source's channels";
  for (size_t i = 0; i + (depth_taps_ == 1 ? 1 : 0) < fields_.size(); ++i) {
    if (fields_[i].dims[1] % lanes != 0)
      TVM_FFI_THROW(ValueError) << "field " << i << " of the source has not whole vectors of channels";
  }
  if (groups == 1) return;
  if (fields_.size() != 1 || depth_taps_ != 1)
    TVM_FFI_THROW(ValueError) << "filters of several groups read one field of one image";
  if (shape_.channels % (groups * lanes) != 0 || shape_.out_channels % (groups * lanes) != 0)
    TVM_FFI_THROW(ValueError) << "the groups have not whole vectors of channels";
}

// Threads that take whole blocks each read all weights; threads that share a block each read a part of them,
// but the patches and products then travel between cores, which is worth it if the weights are more than
// twice as many.
void WinogradConvolution::ShareWork(int threads) {
  tiles_ = result_.dims[0] * shape_.tile_rows * shape_.tile_cols;
  const int64_t weights = shape_.channels * shape_.out_channels / shape_.groups;
  threads_ = tiles_ * kernels_.points() * weights < kWorthSharing ? 1 : threads;
  const int64_t exchanged = tiles_ * (shape_.channels + shape_.out_channels) * kernels_.points();
  share_phases_ = shape_.groups == 1 && weights * kernels_.filters() * (threads_ - 1) > 2 * exchanged;
  const int64_t block = share_phases_ ? kSharedBlock : kBlock;
  blocks_ = Ceil(tiles_, kernels_.points() > kManyPoints ? block / 2 : block);
  if (shape_.groups > 1) {
    const int64_t wider = std::max(shape_.channels, shape_.out_channels);
    chunks_ = std::min(shape_.groups, Ceil(Ceil(wider, kChunk), threads_) * threads_);
  }
  if (!share_phases_ && chunks_ % threads_ != 0)
    blocks_ = std::min(tiles_, Ceil(blocks_, threads_) * threads_);
  largest_ = Ceil(tiles_, blocks_);
}

// Channels of the groups that are done together.
int64_t WinogradConvolution::HeldOf(int64_t channels) const {
  return channels / shape_.groups * Ceil(shape_.groups, chunks_);
}

TileBlock WinogradConvolution::BlockAt(int64_t begin, int64_t end, int64_t group, float* scratch) const {
  // An odd number of cache lines between rows, and between points: those at powers of two share cache sets.
  const int64_t row = (Ceil(HeldOf(shape_.channels), kLine) | 1) * kLine;
  const int64_t point = (largest_ * row / kLine | 1) * kLine;
  return {begin,
          end - begin,
          group * (shape_.channels / shape_.groups),
          group * (shape_.out_channels / shape_.groups) / kernels_.lanes,
          scratch,
          row,
          point,
          scratch + kernels_.points() * point};
}

size_t WinogradConvolution::ScratchBytes() const {
  const TileBlock block = BlockAt(0, largest_, 0, nullptr);
  const int64_t outputs = Ceil(HeldOf(shape_.out_channels), shape_.panel) * shape_.panel;
  const int64_t products = largest_ * kernels_.points() * outputs;
  const size_t nbytes = RoundUp((kernels_.points() * block.point + products) * sizeof(float));
  return share_phases_ ? nbytes : nbytes * threads_;
}

// A piece is a block of tiles and some of the groups; those with the same groups, and so weights, are
// neighbours.
void WinogradConvolution::RunBlocks(const Call& call, float* scratch) const {
  const int64_t each = static_cast<int64_t>(ScratchBytes() / sizeof(float)) / threads_;
  const float* weights = Floats(weights_);
  const float* zeros = Floats(zeros_);
  ParallelPieces(static_cast<int>(blocks_ * chunks_), threads_, [&](int64_t piece, TeamPlace place) {
    const int64_t i = piece % blocks_, chunk = piece / blocks_;
    const int64_t group = shape_.groups * chunk / chunks_, last = shape_.groups * (chunk + 1) / chunks_;
    const auto until = [&](int64_t channels, int64_t width) {
      return Ceil(channels / shape_.groups * last, width);
    };
    const TileBlock block =
        BlockAt(tiles_ * i / blocks_, tiles_ * (i + 1) / blocks_, group, scratch + place.index * each);
    kernels_.transform_source(shape_, block, call.fields, call.field_count, zeros,
                              block.channel / kernels_.lanes, until(shape_.channels, kernels_.lanes));
    kernels_.multiply(shape_, block, weights,
                      block.vector * kernels_.lanes / shape_.panel * kernels_.points(),
                      until(shape_.out_channels, shape_.panel) * kernels_.points());
    kernels_.transform_result(shape_, block, call.finish, call.result, block.vector,
                              until(shape_.out_channels, kernels_.lanes));
  });
}

void WinogradConvolution::RunPhases(const Call& call, float* scratch) const {
  const float* weights = Floats(weights_);
  const float* zeros = Floats(zeros_);
  const auto share = [&](int64_t count, const auto& phase) {
    ParallelRanges(count, threads_, [&](int64_t from, int64_t to, TeamPlace) { phase(from, to); });
  };
  for (int64_t i = 0; i < blocks_; ++i) {
    const TileBlock block = BlockAt(tiles_ * i / blocks_, tiles_ * (i + 1) / blocks_, 0, scratch);
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
  const std::string groups = shape_.groups > 1 ? ", " + std::to_string(shape_.groups) + " groups" : "";
  const std::string taps = std::to_string(kernels_.taps), stride = kernels_.stride == 1 ? "" : ", stride 2";
  return "winograd " + edge + "x" + edge + " of " + taps + "x" + taps + stride + " " + isa_ + groups + ", " +
         std::to_string(blocks_ * chunks_) + " blocks of " + std::to_string(largest_) + " tiles" +
         (share_phases_ ? ", each by all threads" : "");
}

}  // namespace

std::unique_ptr<PreparedStep> MakeWinograd(const Program& program, const Step& step,
                                           const std::byte* constants, int threads) {
  return std::make_unique<WinogradConvolution>(program, step, constants, threads);
}

}  // namespace collage::kernels
