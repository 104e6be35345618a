// Times kernels against each other, in rounds: drift of the machine hits all alike.
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <limits>

#include "base/call.h"
#include "base/interval.h"
#include "base/neighbours.h"
#include "base/pool.h"

namespace collage {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Tensor;

constexpr double kWindowSeconds = 0.0005;
constexpr size_t kWindowRuns = 9;
constexpr double kStillImproving = 0.98;
constexpr size_t kRunsPerTurn = 3;
// What the budget does not forbid, unless it is exceeded many times: one run says nothing about noise.
constexpr size_t kFewRuns = 3;
constexpr double kManyTimes = 10;

struct Limits {
  double percentile, confidence, tolerance;
  size_t min_runs, max_runs;
  double max_seconds, max_warmup_seconds;
};

// The median of one window of runs: one long run, or several short ones.
double WindowMedian(Call* call) {
  std::vector<double> seconds;
  const Clock::time_point begin = Clock::now();
  do seconds.push_back(call->Seconds());
  while (seconds.size() < kWindowRuns && SecondsSince(begin) < kWindowSeconds);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

// Runs until a window is no faster than the best before it.
void WarmUp(Call* call, double max_seconds) {
  const Clock::time_point begin = Clock::now();
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    const double median = WindowMedian(call);
    if (median > kStillImproving * best || SecondsSince(begin) > max_seconds) return;
    best = median;
  }
}

class Runner {
 public:
  Runner(Function function, const Array<Any>& args, Array<Tensor> warm)
      : call_(std::move(function), args), warm_(std::move(warm)) {}

  void WarmUp(double max_seconds) { collage::WarmUp(&call_, max_seconds); }

  // One run; `prepared` seconds were spent on leaving the caches as its neighbours do.
  void Run(double prepared) {
    const Clock::time_point begin = Clock::now();
    Neighbours::Write(warm_);
    seconds_.push_back(call_.Seconds());
    spent_ += SecondsSince(begin) + prepared;
  }

  // Some runs in a row, each behind an eviction of its own. The first, behind those of the others, does not count.
  void TakeTurn(Neighbours* neighbours, const Limits& limits) {
    RunApart(neighbours);
    seconds_.pop_back();
    for (size_t i = 0; i < kRunsPerTurn && (i == 0 || !Spent(limits)); ++i) RunApart(neighbours);
  }

  void Estimate(const Limits& limits) {
    interval_ = PercentileInterval(seconds_, limits.percentile, limits.confidence);
  }

  bool Spent(const Limits& limits) const {
    const double allowed = limits.max_seconds * (seconds_.size() < kFewRuns ? kManyTimes : 1);
    return seconds_.size() >= limits.max_runs || spent_ >= allowed;
  }

  bool active = true;

  size_t runs() const { return seconds_.size(); }
  const Interval& interval() const { return interval_; }
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  void RunApart(Neighbours* neighbours) {
    const Clock::time_point begin = Clock::now();
    neighbours->Evict();
    Run(SecondsSince(begin));
  }

  Call call_;
  Array<Tensor> warm_;
  std::vector<double> seconds_;
  double spent_ = 0;
  Interval interval_{0, 0, 0};
};

class Race {
 public:
  Race(std::vector<Runner> runners, const Limits& limits, int64_t evict_bytes, bool apart)
      : runners_(std::move(runners)), limits_(limits), neighbours_(evict_bytes), apart_(apart) {}

  void Run() {
    for (Runner& runner : runners_) runner.WarmUp(limits_.max_warmup_seconds);
    for (size_t round = 1; Active() > 0; ++round) {
      RunRound(round % 2 == 0);
      Retire(round);
    }
  }

  const std::vector<Runner>& runners() const { return runners_; }

 private:
  size_t Active() const {
    return std::count_if(runners_.begin(), runners_.end(), [](const Runner& runner) { return runner.active; });
  }

  // One eviction serves a round of rivals: what a kernel alone uses was last used a round ago.
  void RunRound(bool backwards) {
    const Clock::time_point begin = Clock::now();
    if (!apart_) neighbours_.Evict();
    const double share = SecondsSince(begin) / static_cast<double>(Active());
    for (size_t i = 0; i < runners_.size(); ++i) {
      Runner& runner = runners_[backwards ? runners_.size() - 1 - i : i];
      if (!runner.active) continue;
      if (apart_) {
        runner.TakeTurn(&neighbours_, limits_);
      } else {
        runner.Run(share);
      }
    }
  }

  void Retire(size_t round) {
    for (Runner& runner : runners_) {
      if (runner.active) runner.Estimate(limits_);
      if (runner.Spent(limits_)) runner.active = false;
    }
    if (round * (apart_ ? kRunsPerTurn : 1) < limits_.min_runs) return;
    const double bar = Bar();
    bool decided = true;
    for (Runner& runner : runners_) {
      if (runner.interval().low > bar) runner.active = false;  // beaten
      decided = decided && (!runner.active || runner.interval().Error() <= limits_.tolerance);
    }
    if (!decided) return;
    for (Runner& runner : runners_) runner.active = false;
  }

  // The end of the fastest one's interval: who begins behind it has lost.
  double Bar() const {
    const auto leader = std::min_element(runners_.begin(), runners_.end(), [](const auto& a, const auto& b) {
      return a.interval().estimate < b.interval().estimate;
    });
    return leader->interval().high;
  }

  std::vector<Runner> runners_;
  Limits limits_;
  Neighbours neighbours_;
  bool apart_;
};

// The seconds of each run of each function. Every function runs at least once.
Array<Array<double>> RunRace(Array<Function> functions, Array<Array<Any>> args, Array<Array<Tensor>> warm,
                             double percentile, double confidence, double tolerance, int64_t min_runs,
                             int64_t max_runs, double max_seconds, double max_warmup_seconds,
                             int64_t evict_bytes, bool apart) {
  const Limits limits{percentile, confidence, tolerance, static_cast<size_t>(min_runs),
                      static_cast<size_t>(max_runs), max_seconds, max_warmup_seconds};
  std::vector<Runner> runners;
  for (size_t i = 0; i < functions.size(); ++i) runners.emplace_back(functions[i], args[i], warm[i]);
  Race race(std::move(runners), limits, evict_bytes, apart);
  race.Run();
  Array<Array<double>> seconds;
  for (const Runner& runner : race.runners()) {
    seconds.push_back(Array<double>(runner.seconds().begin(), runner.seconds().end()));
  }
  return seconds;
}

TVM_FFI_STATIC_INIT_BLOCK() { tvm::ffi::reflection::GlobalDef().def("collage.runtime.race", RunRace); }

}  // namespace
}  // namespace collage
