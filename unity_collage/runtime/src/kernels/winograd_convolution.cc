// A step "winograd": packs its weights and divides its work among the threads.
#include <tvm/ffi/error.h>

#include <algorithm>

#include "base/work_stealing.h"
#include "kernels/isa.h"
#include "kernels/winograd_weights.h"

namespace collage::kernels {
namespace {

// Tiles of a block. A block of one thread is small enough that its patches and products stay in the cache of
// its core. It is large enough to use weights many times once they are read from memory. A block that all
// threads share is so large that most convolutions have only one.
constexpr int64_t kBlock = 28, kSharedBlock = 112;
// Blocks of algorithms with more points than this are half as large.
constexpr int64_t kManyPoints = 36;
// About how many channels of several groups a thread computes at a time, so that patches stay in its cache.
constexpr int64_t kChunk = 64;
// An odd number of vectors of output channels, up to this many, is computed vector by vector: pairs would
// compute one vector too many. With several groups this holds for every odd number.
constexpr int64_t kMaxOddVectors = 3;
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
    divide_phases_ ? RunPhases(call, scratch) : RunBlocks(call, scratch);
  }

 private:
  void CheckShape() const;
  std::shared_ptr<const AlignedBuffer> PackWeights() const;
  void DivideWork(int threads);
  int64_t ChannelsPerChunk(int64_t channels) const;
  TileBlock BlockAt(int64_t begin, int64_t end, int64_t group, float* scratch) const;
  void RunBlocks(const Call& call, float* scratch) const;
  void RunPhases(const Call& call, float* scratch) const;

  const std::string isa_;
  const WinogradKernels& kernels_;
  WinogradShape shape_;
  int64_t tiles_, panels_, blocks_, max_block_tiles_;
  // The number of chunks that the groups are divided into. A task is one block of tiles in one chunk.
  int64_t chunks_ = 1;
  int threads_;
  // Whether the threads divide each phase of a block among them; otherwise each takes whole blocks.
  bool divide_phases_;
  std::shared_ptr<const AlignedBuffer> weights_;
  AlignedBuffer zeros_;
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
  if (vectors % 2 != 0 && (shape_.groups > 1 || vectors <= kMaxOddVectors)) shape_.panel = kernels_.lanes;
  panels_ = Ceil(shape_.out_channels, shape_.panel);
  DivideWork(threads);
  weights_ = PackWeights();
  zeros_ = Zeros(shape_.channels + kernels_.lanes);
}

void WinogradConvolution::CheckShape() const {
  const int64_t groups = shape_.groups, lanes = kernels_.lanes;
  if (groups < 1 || weights_view_.dims[1] * groups != source_.dims[1])
    TVM_FFI_THROW(ValueError) << "the filters do not have the source's channels";
  for (size_t i = 0; i + (depth_taps_ == 1 ? 1 : 0) < fields_.size(); ++i) {
    if (fields_[i].dims[1] % lanes != 0)
      TVM_FFI_THROW(ValueError) << "field " << i << " of the source does not have whole vectors of channels";
  }
  if (groups == 1) return;
  if (fields_.size() != 1 || depth_taps_ != 1)
    TVM_FFI_THROW(ValueError) << "filters of several groups read one field of one image";
  if (shape_.channels % (groups * lanes) != 0 || shape_.out_channels % (groups * lanes) != 0)
    TVM_FFI_THROW(ValueError) << "the groups do not have whole vectors of channels";
}

std::shared_ptr<const AlignedBuffer> WinogradConvolution::PackWeights() const {
  const bool by_panels = shape_.groups > 1;
  std::string layout = "winograd";
  for (const int64_t number : {int64_t{kernels_.tile}, int64_t{kernels_.taps}, int64_t{kernels_.stride},
                               shape_.panel, int64_t{by_panels}})
    layout += " " + std::to_string(number);
  return PackedFilters(layout, [&](const float* filters) {
    return PackWinogradWeights(filters, weights_view_, kernels_, shape_.panel, by_panels, threads_);
  });
}

// Threads that take whole blocks all read all weights. Threads that divide the phases of a block each read a
// part of the weights, but the patches and products are then exchanged between cores. This pays if the
// weights that it saves reading again are more than twice as much as what is exchanged.
void WinogradConvolution::DivideWork(int threads) {
  tiles_ = result_.dims[0] * shape_.tile_rows * shape_.tile_cols;
  const int64_t weights = shape_.channels * shape_.out_channels / shape_.groups;
  threads_ = tiles_ * kernels_.points() * weights < kMinParallelWork ? 1 : threads;
  const int64_t exchanged = tiles_ * (shape_.channels + shape_.out_channels) * kernels_.points();
  divide_phases_ = shape_.groups == 1 && weights * kernels_.filters() * (threads_ - 1) > 2 * exchanged;
  const int64_t block = divide_phases_ ? kSharedBlock : kBlock;
  blocks_ = Ceil(tiles_, kernels_.points() > kManyPoints ? block / 2 : block);
  if (shape_.groups > 1) {
    const int64_t wider = std::max(shape_.channels, shape_.out_channels);
    chunks_ = std::min(shape_.groups, Ceil(Ceil(wider, kChunk), threads_) * threads_);
  }
  if (!divide_phases_ && chunks_ % threads_ != 0)
    blocks_ = std::min(tiles_, Ceil(blocks_, threads_) * threads_);
  max_block_tiles_ = Ceil(tiles_, blocks_);
}

// `channels` of all groups, reduced to those of one chunk.
int64_t WinogradConvolution::ChannelsPerChunk(int64_t channels) const {
  return channels / shape_.groups * Ceil(shape_.groups, chunks_);
}

TileBlock WinogradConvolution::BlockAt(int64_t begin, int64_t end, int64_t group, float* scratch) const {
  // Rows, and points, are an odd number of cache lines apart: distances of powers of two would map to few
  // cache sets.
  const int64_t row = (Ceil(ChannelsPerChunk(shape_.channels), kLine) | 1) * kLine;
  const int64_t point = (max_block_tiles_ * row / kLine | 1) * kLine;
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
  const TileBlock block = BlockAt(0, max_block_tiles_, 0, nullptr);
  const int64_t outputs = Ceil(ChannelsPerChunk(shape_.out_channels), shape_.panel) * shape_.panel;
  const int64_t products = max_block_tiles_ * kernels_.points() * outputs;
  const size_t nbytes = RoundUp((kernels_.points() * block.point + products) * sizeof(float));
  return divide_phases_ ? nbytes : nbytes * threads_;
}

// A task is a block of tiles in a chunk of groups. Tasks of one chunk, which read the same weights, follow
// each other.
void WinogradConvolution::RunBlocks(const Call& call, float* scratch) const {
  const int64_t each = static_cast<int64_t>(ScratchBytes() / sizeof(float)) / threads_;
  const float* weights = Floats(*weights_);
  const float* zeros = Floats(zeros_);
  ParallelTasks(static_cast<int>(blocks_ * chunks_), threads_, [&](int64_t task, TeamRank rank) {
    const int64_t i = task % blocks_, chunk = task / blocks_;
    const int64_t group = shape_.groups * chunk / chunks_, last = shape_.groups * (chunk + 1) / chunks_;
    const auto end_of = [&](int64_t channels, int64_t width) {
      return Ceil(channels / shape_.groups * last, width);
    };
    const TileBlock block =
        BlockAt(tiles_ * i / blocks_, tiles_ * (i + 1) / blocks_, group, scratch + rank.index * each);
    kernels_.transform_source(shape_, block, call.fields, call.field_count, zeros,
                              block.channel / kernels_.lanes, end_of(shape_.channels, kernels_.lanes));
    kernels_.multiply(shape_, block, weights,
                      block.vector * kernels_.lanes / shape_.panel * kernels_.points(),
                      end_of(shape_.out_channels, shape_.panel) * kernels_.points());
    kernels_.transform_result(shape_, block, call.epilogue, call.result, block.vector,
                              end_of(shape_.out_channels, kernels_.lanes));
  });
}

void WinogradConvolution::RunPhases(const Call& call, float* scratch) const {
  const float* weights = Floats(*weights_);
  const float* zeros = Floats(zeros_);
  const auto divide = [&](int64_t count, const auto& phase) {
    ParallelRanges(count, threads_, [&](int64_t from, int64_t to, TeamRank) { phase(from, to); });
  };
  for (int64_t i = 0; i < blocks_; ++i) {
    const TileBlock block = BlockAt(tiles_ * i / blocks_, tiles_ * (i + 1) / blocks_, 0, scratch);
    divide(Ceil(shape_.channels, kernels_.lanes), [&](int64_t from, int64_t to) {
      kernels_.transform_source(shape_, block, call.fields, call.field_count, zeros, from, to);
    });
    divide(kernels_.points() * panels_,
           [&](int64_t from, int64_t to) { kernels_.multiply(shape_, block, weights, from, to); });
    divide(Ceil(shape_.out_channels, kernels_.lanes), [&](int64_t from, int64_t to) {
      kernels_.transform_result(shape_, block, call.epilogue, call.result, from, to);
    });
  }
}

std::string WinogradConvolution::Description() const {
  const std::string edge = std::to_string(kernels_.tile);
  const std::string groups = shape_.groups > 1 ? ", " + std::to_string(shape_.groups) + " groups" : "";
  const std::string taps = std::to_string(kernels_.taps), stride = kernels_.stride == 1 ? "" : ", stride 2";
  return "winograd " + edge + "x" + edge + " of " + taps + "x" + taps + stride + " " + isa_ + groups + ", " +
         std::to_string(blocks_ * chunks_) + " blocks of " + std::to_string(max_block_tiles_) + " tiles" +
         (divide_phases_ ? ", each by all threads" : "");
}

}  // namespace

std::unique_ptr<PreparedStep> MakeWinograd(const Program& program, const Step& step,
                                           const std::byte* constants, int threads) {
  return std::make_unique<WinogradConvolution>(program, step, constants, threads);
}

}  // namespace collage::kernels
