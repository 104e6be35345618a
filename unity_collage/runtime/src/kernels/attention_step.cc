// A step "attention": finds the heads in the views and divides their rows among the threads.
#include <tvm/ffi/error.h>

#include <algorithm>
#include <optional>

#include "base/aligned_buffer.h"
#include "base/work_stealing.h"
#include "kernels/isa.h"
#include "kernels/step.h"

namespace collage::kernels {
namespace {

// The most bytes of scores for a block of rows: they stay in the second-level cache, with the keys and values
// in use.
constexpr int64_t kScoresBytes = 64 << 10;

// Rows at a distance that is a multiple of this many floats would map to few sets of the cache.
constexpr int64_t kConflictStride = 256;

using Dims = std::vector<int64_t>;

class AttentionStep final : public PreparedStep {
 public:
  AttentionStep(const Step& step, int threads);

  size_t ScratchBytes() const final { return threads_ * thread_floats_ * sizeof(float); }
  std::string Description() const final {
    return std::string("attention ") + isa_ + ", " + std::to_string(heads_) + " heads, " +
           std::to_string(shape_.key_block) + " keys together";
  }
  void Run(std::byte* const* buffers, std::byte* scratch) const final;

 private:
  void CheckDims() const;
  void CheckStrides() const;
  void ReadShape(float scale);
  AttentionHead Head(std::byte* const* buffers, int64_t head) const;
  void Attend(std::byte* const* buffers, float* scratch, int64_t from, int64_t to) const;

  View query_, key_, value_, result_;
  std::optional<View> mask_;
  const char* isa_;
  AttentionKernels kernels_;
  AttentionShape shape_;
  int64_t heads_, blocks_, thread_floats_;
  int threads_;
};

// The last two dims are the matrix of one head.
int64_t Rows(const View& view) { return view.dims[view.dims.size() - 2]; }
int64_t Columns(const View& view) { return view.dims.back(); }
int64_t RowStride(const View& view) { return view.strides[view.dims.size() - 2]; }

bool HasContiguousRows(const View& view) { return Columns(view) == 1 || view.strides.back() == 1; }

AttentionStep::AttentionStep(const Step& step, int threads)
    : query_(FloatArgument(step, "query")),
      key_(FloatArgument(step, "key")),
      value_(FloatArgument(step, "value")),
      result_(FloatArgument(step, "dst")) {
  if (step.args.count("mask") != 0) mask_ = FloatArgument(step, "mask");
  if (!step.post_ops.empty()) TVM_FFI_THROW(ValueError) << "attention has no post-ops";
  CheckDims();
  CheckStrides();
  const Kernels& kernels = FindKernels(step.attrs.TextOr("isa", ""));
  isa_ = kernels.isa;
  kernels_ = kernels.attention;
  ReadShape(step.attrs.Float("scale"));
  const int64_t multiplications = heads_ * shape_.rows * shape_.keys * (shape_.size + shape_.value_size);
  threads_ = multiplications < kMinParallelWork ? 1 : threads;
}

void AttentionStep::CheckDims() const {
  const size_t rank = query_.dims.size();
  if (rank < 2) TVM_FFI_THROW(ValueError) << "'query' does not have two dims";
  const Dims batch(query_.dims.begin(), query_.dims.end() - 2);
  const auto check = [&](const char* name, const View& view, int64_t rows, int64_t columns) {
    Dims wanted = batch;
    wanted.insert(wanted.end(), {rows, columns});
    if (view.dims != wanted)
      TVM_FFI_THROW(ValueError) << "the dims of '" << name << "' do not fit the others";
  };
  const int64_t rows = Rows(query_), keys = key_.dims.back();
  check("key", key_, Columns(query_), keys);
  check("value", value_, keys, value_.dims.back());
  check("dst", result_, rows, value_.dims.back());
  if (mask_.has_value()) check("mask", *mask_, rows, keys);
  for (const View* view : {&query_, &key_, &value_}) {
    if (std::count(view->dims.begin(), view->dims.end(), 0) != 0)
      TVM_FFI_THROW(ValueError) << "an operand is empty";
  }
}

void AttentionStep::CheckStrides() const {
  if (!HasContiguousRows(query_) || !HasContiguousRows(value_) || !HasContiguousRows(result_))
    TVM_FFI_THROW(ValueError) << "the elements of a query, a value or a result are not contiguous";
  if (!HasContiguousRows(key_) && Rows(key_) != 1 && RowStride(key_) != 1)
    TVM_FFI_THROW(ValueError) << "neither keys nor their elements are contiguous";
  if (mask_.has_value() && !HasContiguousRows(*mask_))
    TVM_FFI_THROW(ValueError) << "the rows of the mask are not contiguous";
}

void AttentionStep::ReadShape(float scale) {
  const int64_t lanes = kernels_.lanes, block = kernels_.block, keys = Columns(key_);
  const auto whole = [&](int64_t count) { return Ceil(count, lanes) * lanes; };
  const int64_t fitting = kScoresBytes / static_cast<int64_t>(sizeof(float)) / block;
  shape_.rows = Rows(query_);
  shape_.keys = keys;
  shape_.size = Columns(query_);
  shape_.value_size = Columns(value_);
  shape_.query_row = RowStride(query_);
  shape_.key_step = Rows(key_) == 1 || RowStride(key_) == 1 ? 1 : RowStride(key_);
  shape_.key_row = key_.strides.back();
  shape_.value_row = RowStride(value_);
  shape_.result_row = RowStride(result_);
  shape_.mask_row = mask_.has_value() ? RowStride(*mask_) : 0;
  shape_.scale = scale;
  shape_.key_pitch = whole(keys) + (whole(keys) % kConflictStride == 0 ? lanes : 0);
  shape_.value_pitch = whole(shape_.value_size);
  shape_.key_block = Ceil(keys, Ceil(keys, fitting));
  heads_ = 1;
  for (size_t axis = 0; axis + 2 < query_.dims.size(); ++axis) heads_ *= query_.dims[axis];
  blocks_ = Ceil(shape_.rows, block);
  const int64_t floats = shape_.size * shape_.key_pitch + keys * shape_.value_pitch +
                         (shape_.size + shape_.key_block + shape_.value_pitch) * block;
  thread_floats_ = RoundUp(floats * sizeof(float)) / sizeof(float);
}

AttentionHead AttentionStep::Head(std::byte* const* buffers, int64_t head) const {
  const auto at = [&](const View& view) {
    int64_t offset = 0, left = head;
    for (size_t axis = view.dims.size() - 2; axis-- > 0;) {
      offset += left % view.dims[axis] * view.strides[axis];
      left /= view.dims[axis];
    }
    return ElementsAt(view, buffers, offset);
  };
  const Elements none{nullptr, false};
  return {at(query_), at(key_), at(value_), mask_.has_value() ? at(*mask_) : none, at(result_)};
}

// Computes the blocks of rows [from, to), counted through all heads.
void AttentionStep::Attend(std::byte* const* buffers, float* scratch, int64_t from, int64_t to) const {
  float *keys = scratch, *values = keys + shape_.size * shape_.key_pitch,
        *block = values + shape_.keys * shape_.value_pitch;
  AttentionHead packed{};
  for (int64_t at = from; at < to;) {
    const AttentionHead head = Head(buffers, at / blocks_);
    // Heads of queries that share keys and values are neighbours.
    if (head.key.data != packed.key.data || head.value.data != packed.value.data) {
      kernels_.pack(shape_, head, keys, values);
      packed = head;
    }
    for (const int64_t end = std::min(to, (at / blocks_ + 1) * blocks_); at < end; ++at) {
      const int64_t row = at % blocks_ * kernels_.block;
      kernels_.attend(shape_, head, keys, values, block, row, std::min(shape_.rows, row + kernels_.block));
    }
  }
}

void AttentionStep::Run(std::byte* const* buffers, std::byte* scratch) const {
  // Ranges consist of whole heads if there are enough heads, since each range packs the keys and values of
  // each of its heads.
  const int64_t unit = heads_ >= 2 * threads_ ? blocks_ : 1;
  ParallelRanges(heads_ * blocks_ / unit, threads_, [&](int64_t from, int64_t to, TeamRank rank) {
    Attend(buffers, reinterpret_cast<float*>(scratch) + rank.index * thread_floats_, from * unit, to * unit);
  });
}

}  // namespace

std::unique_ptr<PreparedStep> MakeAttention(const Step& step, int threads) {
  return std::make_unique<AttentionStep>(step, threads);
}

}  // namespace collage::kernels
