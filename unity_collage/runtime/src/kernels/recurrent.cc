// A step "recurrent": a whole sequence of cells. Each thread computes the same units of the hidden state in
// every step, so that their weights stay in its cache. The threads wait for each other between steps. In a
// large batch with small weights a thread computes rows instead, and waits for no other.
#include <tvm/ffi/error.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>

#include "base/aligned_buffer.h"
#include "base/pool.h"
#include "kernels/isa.h"
#include "kernels/shared_weights.h"
#include "kernels/step.h"

namespace collage::kernels {
namespace {

// The batch is divided only if each thread gets at least this many rows.
constexpr int kMinRowsPerThread = 3;

// The most bytes of weights that stay in the second-level cache of a thread that reads all of them.
constexpr int64_t kMaxWeightBytes = 256 << 10;

// The progress of one thread's share: how many of its phases have been begun, by whichever thread, and how
// many are done. Each counter has a cache line of its own, which makes a cheap barrier: it costs the transfer
// of two lines between two cores. A parallel region costs more.
struct Progress {
  alignas(kAlignment) std::atomic<int64_t> begun{0};
  alignas(kAlignment) std::atomic<int64_t> done{0};

  // True for the one thread that is to run the share of this phase.
  bool Claim(int64_t phase) {
    return begun.compare_exchange_strong(phase, phase + 1, std::memory_order_acq_rel);
  }
};

// A thread that waits does not claim at once: it would take the cache line from a thread that is about to
// begin.
constexpr int kSpinsBeforeClaim = 64;

struct Range {
  int64_t from, to;
};

Range Part(int64_t n, int index, int parts) { return {n * index / parts, n * (index + 1) / parts}; }

Activation ActivationOf(const std::string& name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "sigmoid") return Activation::kSigmoid;
  if (name == "softsign") return Activation::kSoftsign;
  if (name == "tanh") return Activation::kTanh;
  TVM_FFI_THROW(ValueError) << "the kernels have no activation '" << name << "'";
  TVM_FFI_UNREACHABLE();
}

// A part of a cell that one kernel computes: its gates are those of the operator from `first` on.
struct Phase {
  Cell cell;
  int first;
  std::shared_ptr<const AlignedBuffer> weights;
};

class RecurrentStep final : public PreparedStep {
 public:
  RecurrentStep(const Program& program, const Step& step, const std::byte* constants, int threads);

  size_t ScratchBytes() const final { return threads_ * sizeof(Progress) + 2 * StateBytes(); }
  std::string Description() const final {
    return cell_ + " " + isa_ + ", " + std::to_string(steps_) + " steps of " + std::to_string(hidden_) +
           (threads_ == 1 ? " on one thread"
            : by_rows_    ? " shared by rows"
                          : "");
  }
  void Run(std::byte* const* buffers, std::byte* scratch) const final;

 private:
  // The addresses of one call.
  struct Call {
    const float *inputs, *state, *cell_state, *bias;
    float* result;
    // Scratch: CellStep::carry, and the state of a GRU after its reset.
    float *carry, *reset;
    // Null if the threads do not wait for each other.
    Progress* progress;
  };

  struct Share {
    Range rows, units;
  };

  int64_t UnitWidth() const { return int64_t{UnitVectors(phases_[0].cell)} * kernels_.lanes; }
  int64_t PhaseCount() const { return steps_ * static_cast<int64_t>(phases_.size()); }
  int64_t Units() const { return Ceil(hidden_, UnitWidth()); }
  size_t StateBytes() const { return RoundUp(batch_ * hidden_ * sizeof(float)); }
  void CheckShapes(const View& weights) const;
  void AddPhase(Cell cell, int first, const float* weights, const View& view);
  AlignedBuffer Packed(Cell cell, int first, const float* weights, const View& view) const;
  Share ShareOf(TeamRank rank) const;
  void TakeCellState(const Call& call, const Share& share) const;
  void ReturnCellState(const Call& call, const Share& share) const;
  void CopyUnits(const Share& share, const float* from, int64_t from_row, float* to, int64_t to_row) const;
  void RunPhase(const Call& call, const Share& share, int64_t number) const;
  void RunAlone(const Call& call, TeamRank rank) const;
  void RunTogether(const Call& call, TeamRank rank) const;
  CellStep At(const Call& call, const Phase& phase, int64_t time) const;

  std::string cell_, isa_;
  RecurrentKernels kernels_;
  View inputs_, state_, result_;
  std::optional<View> cell_state_, bias_;
  int64_t steps_, batch_, hidden_;
  bool reverse_, returns_cell_state_;
  // Whether each thread has rows of the batch; otherwise it has units of the hidden state.
  bool by_rows_;
  int threads_;
  Activation functions_[3] = {};
  std::vector<Phase> phases_;
};

RecurrentStep::RecurrentStep(const Program& program, const Step& step, const std::byte* constants,
                             int threads)
    : cell_(step.attrs.Text("cell")),
      inputs_(Float32Argument(step, "src")),
      state_(Float32Argument(step, "state")),
      result_(Float32Argument(step, "dst")),
      reverse_(step.attrs.Int("reverse") != 0) {
  const Kernels& kernels = FindKernels(step.attrs.TextOr("isa", ""));
  isa_ = kernels.isa;
  kernels_ = kernels.recurrent;
  const View& weights = Float32Argument(step, "weights");
  if (cell_ == "lstm") cell_state_ = Float32Argument(step, "memory");
  if (step.args.count("bias") != 0) bias_ = Float32Argument(step, "bias");
  CheckShapes(weights);
  steps_ = inputs_.dims[0];
  batch_ = inputs_.dims[1];
  hidden_ = state_.dims[1];
  returns_cell_state_ = result_.dims[0] > steps_;
  const char* const names[] = {"f", "g", "h"};
  for (int i = 0; i < 3; ++i) functions_[i] = ActivationOf(step.attrs.TextOr(names[i], "tanh"));
  const Buffer& buffer = program.buffers[weights.buffer];
  if (buffer.place != Place::kConstant) TVM_FFI_THROW(ValueError) << "the weights are not a constant";
  const float* data = reinterpret_cast<const float*>(constants + buffer.where + weights.offset);
  if (cell_ == "lstm") {
    AddPhase(Cell::kLstm, 0, data, weights);
  } else if (cell_ == "rnn") {
    AddPhase(Cell::kRnn, 0, data, weights);
  } else if (step.attrs.Int("resets_first") == 0) {
    AddPhase(Cell::kGru, 0, data, weights);
  } else {
    AddPhase(Cell::kGruGates, 0, data, weights);
    AddPhase(Cell::kGruState, 2, data, weights);
  }
  by_rows_ = batch_ >= int64_t{kMinRowsPerThread} * threads &&
             hidden_ * weights.dims[1] * static_cast<int64_t>(sizeof(float)) <= kMaxWeightBytes;
  // Not more threads than have enough work: all threads would wait for one that computes little.
  const int64_t worth = std::max<int64_t>(1, 2 * batch_ * hidden_ * weights.dims[1] / kMinParallelWork);
  threads_ =
      static_cast<int>(std::min({int64_t{threads}, worth, by_rows_ ? batch_ / kMinRowsPerThread : Units()}));
}

void RecurrentStep::CheckShapes(const View& weights) const {
  const int gates = cell_ == "lstm" ? 4 : cell_ == "gru" ? 3 : cell_ == "rnn" ? 1 : 0;
  if (gates == 0) TVM_FFI_THROW(ValueError) << "the kernels have no cell '" << cell_ << "'";
  const auto fits = [](const View& view, const std::vector<int64_t>& dims) {
    return view.dims == dims && (dims.back() == 1 || view.strides.back() == 1);
  };
  const std::vector<int64_t>&source = inputs_.dims, &hidden = state_.dims;
  bool right =
      source.size() == 3 && hidden.size() == 2 && weights.dims.size() == 2 && result_.dims.size() == 3;
  if (right) {
    const int64_t rows = source[0] + (cell_ == "lstm" && result_.dims[0] > source[0] ? 1 : 0);
    right = fits(inputs_, {source[0], source[1], gates * hidden[1]}) &&
            fits(state_, {source[1], hidden[1]}) &&
            weights.dims == std::vector<int64_t>{hidden[1], gates * hidden[1]} &&
            fits(result_, {rows, source[1], hidden[1]}) &&
            (!cell_state_.has_value() || fits(*cell_state_, {source[1], hidden[1]})) &&
            (!bias_.has_value() || fits(*bias_, {hidden[1]}));
  }
  if (!right)
    TVM_FFI_THROW(ValueError) << "the tensors are not those of a sequence of " << cell_
                              << " cells, dense in their last axis";
}

void RecurrentStep::AddPhase(Cell cell, int first, const float* weights, const View& view) {
  std::string layout = "recurrent";
  for (const int64_t number : {int64_t{kernels_.lanes}, int64_t{UnitVectors(cell)}, int64_t{GatesOf(cell)},
                               int64_t{first}, hidden_, view.strides[0], view.strides[1]})
    layout += " " + std::to_string(number);
  phases_.push_back(
      {cell, first, SharedWeights(weights, layout, [&] { return Packed(cell, first, weights, view); })});
}

AlignedBuffer RecurrentStep::Packed(Cell cell, int first, const float* weights, const View& view) const {
  const int lanes = kernels_.lanes, gates = GatesOf(cell), vectors = UnitVectors(cell);
  const int64_t width = int64_t{vectors} * lanes, units = Ceil(hidden_, width);
  AlignedBuffer packed(units * hidden_ * gates * width * sizeof(float));
  PreferLargePages(packed);
  float* to = reinterpret_cast<float*>(packed.data());
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int64_t k = 0; k < hidden_; ++k) {
      const float* row = weights + k * view.strides[0];
      for (int gate = first; gate < first + gates; ++gate) {
        for (int64_t at = unit * width; at < (unit + 1) * width; ++at)
          *to++ = at < hidden_ ? row[(gate * hidden_ + at) * view.strides[1]] : 0;
      }
    }
  }
  return packed;
}

CellStep RecurrentStep::At(const Call& call, const Phase& phase, int64_t time) const {
  const int64_t row = reverse_ ? steps_ - 1 - time : time, before = reverse_ ? row + 1 : row - 1;
  CellStep step{};
  step.hidden = hidden_;
  step.weights = reinterpret_cast<const float*>(phase.weights->data());
  step.state = time == 0 ? call.state : call.result + before * result_.strides[0];
  step.state_row = time == 0 ? state_.strides[0] : result_.strides[1];
  step.inputs = call.inputs + row * inputs_.strides[0] + phase.first * hidden_;
  step.inputs_row = inputs_.strides[1];
  step.factor = step.state;
  step.factor_row = step.state_row;
  step.result = call.result + row * result_.strides[0];
  step.result_row = result_.strides[1];
  if (phase.cell == Cell::kGruGates) {
    step.result = call.reset;
    step.result_row = hidden_;
  } else if (phase.cell == Cell::kGruState) {
    step.factor = call.reset;
    step.factor_row = hidden_;
  }
  step.carry = call.carry;
  step.bias = call.bias;
  std::copy(functions_, functions_ + 3, step.functions);
  return step;
}

// A thread's share: either some rows with all units, or all rows with some units.
RecurrentStep::Share RecurrentStep::ShareOf(TeamRank rank) const {
  const Range all_rows{0, batch_}, all_units{0, Units()};
  if (by_rows_) return {Part(batch_, rank.index, rank.size), all_units};
  return {all_rows, Part(all_units.to, rank.index, rank.size)};
}

void RecurrentStep::TakeCellState(const Call& call, const Share& share) const {
  if (cell_state_.has_value())
    CopyUnits(share, call.cell_state, cell_state_->strides[0], call.carry, hidden_);
}

void RecurrentStep::ReturnCellState(const Call& call, const Share& share) const {
  if (returns_cell_state_)
    CopyUnits(share, call.carry, hidden_, call.result + steps_ * result_.strides[0], result_.strides[1]);
}

void RecurrentStep::CopyUnits(const Share& share, const float* from, int64_t from_row, float* to,
                              int64_t to_row) const {
  const int64_t first = share.units.from * UnitWidth(), end = std::min(share.units.to * UnitWidth(), hidden_);
  if (first >= end) return;
  for (int64_t row = share.rows.from; row < share.rows.to; ++row)
    std::copy(from + row * from_row + first, from + row * from_row + end, to + row * to_row + first);
}

void RecurrentStep::RunPhase(const Call& call, const Share& share, int64_t number) const {
  const auto count = static_cast<int64_t>(phases_.size());
  const Phase& phase = phases_[number % count];
  kernels_.steps[static_cast<int>(phase.cell)](At(call, phase, number / count), share.rows.from,
                                               share.rows.to, share.units.from, share.units.to);
}

void RecurrentStep::RunAlone(const Call& call, TeamRank rank) const {
  const Share share = ShareOf(rank);
  TakeCellState(call, share);
  for (int64_t number = 0; number < PhaseCount(); ++number) RunPhase(call, share, number);
  ReturnCellState(call, share);
}

// A thread may be asleep, or its core may run another process. A thread that waits for its share then runs
// that share, so that a thread that has not begun delays no phase.
void RecurrentStep::RunTogether(const Call& call, TeamRank rank) const {
  const int64_t phases = PhaseCount();
  const auto run = [&](int index, int64_t number) {
    const Share share = ShareOf({index, rank.size});
    if (number == 0) TakeCellState(call, share);
    RunPhase(call, share, number);
    if (number == phases - 1) ReturnCellState(call, share);
    call.progress[index].done.store(number + 1, std::memory_order_release);
  };
  for (int64_t number = 0; number < phases; ++number) {
    if (call.progress[rank.index].Claim(number)) run(rank.index, number);
    if (number == phases - 1) return;  // the end of the region waits for all
    for (int i = 0; i < rank.size; ++i) {
      Progress& other = call.progress[i];
      Backoff backoff;
      for (int spins = 0; other.done.load(std::memory_order_acquire) <= number; ++spins) {
        if (spins >= kSpinsBeforeClaim && other.Claim(number))
          run(i, number);
        else
          backoff.Wait();
      }
    }
  }
}

void RecurrentStep::Run(std::byte* const* buffers, std::byte* scratch) const {
  Call call{};
  call.inputs = FloatsAt(inputs_, buffers);
  call.state = FloatsAt(state_, buffers);
  call.cell_state = cell_state_.has_value() ? FloatsAt(*cell_state_, buffers) : nullptr;
  call.bias = bias_.has_value() ? FloatsAt(*bias_, buffers) : nullptr;
  call.result = FloatsAt(result_, buffers);
  call.carry = reinterpret_cast<float*>(scratch);
  call.reset = reinterpret_cast<float*>(scratch + StateBytes());
  if (threads_ > 1 && !by_rows_ && steps_ > 0 && !InParallelRegion()) {
    call.progress = reinterpret_cast<Progress*>(scratch + 2 * StateBytes());
    for (int i = 0; i < threads_; ++i) new (call.progress + i) Progress;
  }
  OnTeam(threads_, [&](TeamRank rank) {
    if (call.progress == nullptr)
      RunAlone(call, rank);
    else
      RunTogether(call, rank);
  });
}

}  // namespace

std::unique_ptr<PreparedStep> MakeRecurrent(const Program& program, const Step& step,
                                            const std::byte* constants, int threads) {
  return std::make_unique<RecurrentStep>(program, step, constants, threads);
}

}  // namespace collage::kernels
