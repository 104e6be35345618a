// Times kernels on the device in turns: a round runs each of them a few times, so that drift of its clock affects all
// alike.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <memory>

#include "base/call.h"
#include "base/dtype.h"
#include "base/interval.h"
#include "cuda/device_clock.h"
#include "cuda/probe_kernels.h"

namespace collage::cuda {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Tensor;

constexpr size_t kRunsPerTurn = 5;
constexpr double kFewTurns = 3;      // how many turns of a slow kernel fit into its budget
constexpr double kNoisy = 0.1;       // half the width of an interval, as a share of its estimate
constexpr double kIdle = 0.2;        // seconds after which a device may have lowered its clock
constexpr double kAwake = 0.02;      // seconds of work after which it has raised it
constexpr size_t kFew = 64, kMany = 512;  // kernels in the two graphs that measure a launch
constexpr size_t kLaunchRuns = 15;

struct Limits {
  double percentile, confidence, tolerance;
  size_t min_runs, max_runs;
  double max_seconds;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// An idle device lowers its clock, and needs some time to raise it.
void WakeUp(const OwnStream& stream) {
  static Clock::time_point awake{};
  if (SecondsSince(awake) > kIdle) {
    DeviceBuffer memory(size_t{64} << 20);
    const Clock::time_point begin = Clock::now();
    while (SecondsSince(begin) < kAwake) {
      for (int i = 0; i < 16; ++i) {
        Check(Runtime().memset_async(memory.data(), i, memory.nbytes(), stream.get()), "cudaMemset");
      }
      stream.Wait();
    }
  }
  awake = Clock::now();
}

// Seconds between two events around a kernel that does nothing. They are not part of a kernel's cost, and are
// subtracted.
double EmptySpan(DeviceClock* clock, Stream stream) {
  const auto spans = [&] { return clock->Spans(2 * kRunsPerTurn, [] {}, [&] { LaunchNothing(stream); }); };
  spans();
  return Median(spans());
}

class Runner {
 public:
  Runner(Function function, const Array<Any>& args, const Array<Tensor>& warm, const OwnStream& stream)
      : call_(std::make_unique<Call>(std::move(function), args)), warm_(warm) {
    for (const Tensor& tensor : warm_) {
      const DLTensor& like = *tensor.GetDLTensorPtr();
      int64_t elements = 1;
      for (int i = 0; i < like.ndim; ++i) elements *= like.shape[i];
      DeviceBuffer& copy = copies_.emplace_back(static_cast<size_t>(elements * ItemSize(like.dtype)));
      const std::byte* from = static_cast<const std::byte*>(like.data) + like.byte_offset;
      Check(Runtime().memcpy_async(copy.data(), from, copy.nbytes(), kCopyOfAnyKind, stream.get()), "cudaMemcpy");
      tensors_.push_back(like);
    }
  }

  // Two runs that do not count. The second one shows how many runs fit into a turn.
  void WarmUp(DeviceClock* clock, DeviceCache* cache, Stream stream, const Limits& limits) {
    Run(clock, cache, stream, 1);
    const double fitting = limits.max_seconds / (kFewTurns * Run(clock, cache, stream, 1).front());
    runs_per_turn_ = static_cast<size_t>(std::clamp(fitting, 1.0, static_cast<double>(kRunsPerTurn)));
    spent_ = 0;
  }

  void TakeTurn(DeviceClock* clock, DeviceCache* cache, Stream stream, double empty) {
    for (const double span : Run(clock, cache, stream, runs_per_turn_)) {
      seconds.push_back(std::max(span - empty, kLeast));
    }
  }

  void Estimate(const Limits& limits) {
    interval = PercentileInterval(seconds, limits.percentile, limits.confidence);
  }

  bool IsOverBudget(const Limits& limits) const {
    return seconds.size() >= limits.max_runs || spent_ >= limits.max_seconds;
  }

  bool active = true;
  std::vector<double> seconds;
  Interval interval{0, 0, 0};

 private:
  static constexpr double kLeast = 1e-8;  // a cost is never zero

  std::vector<double> Run(DeviceClock* clock, DeviceCache* cache, Stream stream, size_t runs) {
    const Clock::time_point begin = Clock::now();
    std::vector<double> spans = clock->Spans(
        runs, [&] { cache->Prepare(tensors_, copies_, stream); }, [&] { call_->Run(); });
    spent_ += SecondsSince(begin);
    return spans;
  }

  std::unique_ptr<Call> call_;
  Array<Tensor> warm_;
  std::vector<DLTensor> tensors_;
  std::vector<DeviceBuffer> copies_;
  size_t runs_per_turn_ = kRunsPerTurn;
  double spent_ = 0;
};

// Stops runners that have used their budget or are certainly slower than the fastest. Returns whether another
// round is needed: not once the intervals of all others are narrow enough.
bool Eliminate(std::vector<Runner>* runners, const Limits& limits) {
  bool few = false;
  for (Runner& runner : *runners) {
    if (!runner.active) continue;
    runner.Estimate(limits);
    if (runner.IsOverBudget(limits)) runner.active = false;
    few = few || (runner.active && runner.seconds.size() < limits.min_runs);
  }
  if (few) return true;
  const auto fastest = std::min_element(runners->begin(), runners->end(), [](const auto& a, const auto& b) {
    return a.interval.estimate < b.interval.estimate;
  });
  bool more = false;
  for (Runner& runner : *runners) {
    if (runner.interval.low > fastest->interval.high) runner.active = false;
    more = more || (runner.active && runner.interval.Error() > limits.tolerance);
  }
  return more;
}

// For each function the seconds of each run, and whether they are too noisy to be trusted. Every function is
// timed at least once.
Array<Any> TimeInTurns(Array<Function> functions, Array<Array<Any>> args, Array<Array<Tensor>> warm, double percentile,
                       double confidence, double tolerance, int64_t min_runs, int64_t max_runs, double max_seconds,
                       int64_t evict_bytes) {
  const Limits limits{percentile,  confidence, tolerance, static_cast<size_t>(min_runs), static_cast<size_t>(max_runs),
                      max_seconds};
  const OwnStream stream;
  DeviceClock clock(stream);
  DeviceCache cache(static_cast<size_t>(evict_bytes));
  WakeUp(stream);
  const double empty = EmptySpan(&clock, stream.get());
  std::vector<Runner> runners;
  for (size_t i = 0; i < functions.size(); ++i) runners.emplace_back(functions[i], args[i], warm[i], stream);
  for (Runner& runner : runners) runner.WarmUp(&clock, &cache, stream.get(), limits);
  bool more = true;
  for (size_t round = 0; more; ++round) {
    for (size_t i = 0; i < runners.size(); ++i) {
      Runner& runner = runners[round % 2 == 0 ? i : runners.size() - 1 - i];
      if (runner.active) runner.TakeTurn(&clock, &cache, stream.get(), empty);
    }
    more = Eliminate(&runners, limits);
    more = more && std::any_of(runners.begin(), runners.end(), [](const Runner& runner) { return runner.active; });
  }
  stream.Wait();
  Array<Any> timed;
  for (const Runner& runner : runners) {
    timed.push_back(Array<double>(runner.seconds.begin(), runner.seconds.end()));
    timed.push_back(runner.interval.Error() > kNoisy);
  }
  return timed;
}

// Seconds of one run of a graph with `kernels` kernels that do nothing.
double GraphSeconds(DeviceClock* clock, const OwnStream& stream, size_t kernels) {
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  Check(Runtime().stream_begin_capture(stream.get(), kCaptureRelaxed), "cudaStreamBeginCapture");
  for (size_t i = 0; i < kernels; ++i) LaunchNothing(stream.get());
  Check(Runtime().stream_end_capture(stream.get(), &graph), "cudaStreamEndCapture");
  Check(Runtime().graph_instantiate(&exec, graph, 0), "cudaGraphInstantiate");
  const auto launch = [&] { Check(Runtime().graph_launch(exec, stream.get()), "cudaGraphLaunch"); };
  clock->Spans(3, [] {}, launch);
  const double seconds = Median(clock->Spans(kLaunchRuns, [] {}, launch));
  Runtime().graph_exec_destroy(exec);
  Runtime().graph_destroy(graph);
  return seconds;
}

// How many seconds one more kernel adds to a graph, not counting the time of the kernel itself.
double LaunchSeconds() {
  const OwnStream stream;
  DeviceClock clock(stream);
  WakeUp(stream);
  EmptySpan(&clock, stream.get());
  const double few = GraphSeconds(&clock, stream, kFew), many = GraphSeconds(&clock, stream, kMany);
  return std::max(0.0, (many - few) / static_cast<double>(kMany - kFew));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.cuda.time_in_turns", TimeInTurns)
      .def("collage.cuda.launch_seconds", LaunchSeconds);
}

}  // namespace
}  // namespace collage::cuda
