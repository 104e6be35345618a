// Times kernels in turns: a round runs each of them, so that drift of the machine affects all alike. Kernels
// that compute the same are rivals.
#include <tvm/ffi/optional.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/cache_state.h"
#include "base/call.h"
#include "base/calm.h"
#include "base/interval.h"
#include "base/pool.h"

namespace collage {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Optional;
using tvm::ffi::Tensor;

constexpr double kWindowSeconds = 0.0005;
constexpr size_t kWindowRuns = 9;
constexpr double kImprovement = 0.98;
constexpr size_t kRunsPerTurn = 3;
// The first kMinRuns runs may take kMinRunsFactor times the budget: one run says nothing about noise.
constexpr size_t kMinRuns = 3;
constexpr double kMinRunsFactor = 10;
// Runs that other work of the machine disturbs do not count. Such runs, and the waits for that work to end,
// may take this many times the budget.
constexpr double kPatience = 3;
// All runners of a call together wait for at most this many times the budget of one runner. On a machine that
// is always busy, waiting helps none of them.
constexpr double kPatienceTogether = 10;
constexpr double kMostWaiting = 0.05;  // seconds before one run

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
    if (median > kImprovement * best || SecondsSince(begin) > max_seconds) return;
    best = median;
  }
}

class Runner {
 public:
  // `twin`: the same kernel with constants of its own, or nothing. `rivals`: which runners compute the same.
  Runner(Call call, std::optional<Call> twin, Array<Tensor> warm, int64_t rivals)
      : rivals(rivals), call_(std::move(call)), twin_(std::move(twin)), warm_(std::move(warm)) {}

  void WarmUp(double max_seconds) {
    collage::WarmUp(&call_, max_seconds);
    if (twin_) collage::WarmUp(&*twin_, max_seconds);
  }

  // One run. `preparation` is how many seconds it took to prepare the caches for it, `patience` for how many
  // seconds all runners together may still wait for the machine.
  void Run(double preparation, const Limits& limits, double* patience) {
    if (twin_) preparation += RunTwin();
    const Clock::time_point begin = Clock::now();
    bool calm = calm_.Await(std::min({kMostWaiting, kPatience * Allowed(limits) - waited_, *patience}));
    const Clock::time_point after = Clock::now();
    *patience -= std::chrono::duration<double>(after - begin).count();
    CacheState::WriteFromAllCores(warm_);
    const double seconds = call_.Seconds();
    const double taken = SecondsSince(after) + preparation;
    calm = calm_.Lasted(seconds) && calm;
    waited_ += std::chrono::duration<double>(after - begin).count() + (calm ? 0 : taken);
    spent_ += calm ? taken : 0;
    (calm ? seconds_ : disturbed_).push_back(seconds);
  }

  // Several runs in a row, each after its own eviction. The first one does not count, since it follows a run
  // of another runner.
  void TakeTurn(CacheState* caches, const Limits& limits, double* patience) {
    const size_t calm = seconds_.size(), disturbed = disturbed_.size();
    RunEvicted(caches, limits, patience);
    seconds_.resize(calm);
    disturbed_.resize(disturbed);
    for (size_t i = 0; i < kRunsPerTurn && (i == 0 || !IsOverBudget(limits)); ++i) {
      RunEvicted(caches, limits, patience);
    }
  }

  void Estimate(const Limits& limits) {
    interval_ = PercentileInterval(Samples(), limits.percentile, limits.confidence);
  }

  bool IsOverBudget(const Limits& limits) const {
    return seconds_.size() + disturbed_.size() >= limits.max_runs || spent_ >= Allowed(limits) ||
           waited_ >= kPatience * Allowed(limits) ||
           disturbed_.size() >= static_cast<size_t>(kPatience) * std::max(limits.min_runs, seconds_.size());
  }

  // The runs that were not disturbed, or all of them where there are too few.
  std::vector<double> Samples() const {
    if (disturbed_.empty() || seconds_.size() >= kMinRuns) return seconds_;
    std::vector<double> all = seconds_;
    all.insert(all.end(), disturbed_.begin(), disturbed_.end());
    return all;
  }

  // Whether the runner has too few runs because other work of the machine disturbed it.
  bool IsDoubtful(const Limits& limits) const {
    return !disturbed_.empty() && seconds_.size() < limits.min_runs && spent_ < Allowed(limits);
  }

  bool active = true;
  int64_t rivals;

  size_t calm_runs() const { return seconds_.size(); }
  const Interval& interval() const { return interval_; }

 private:
  // Brings back what repeated runs of a kernel keep: its code in the caches, and the history of its branches.
  // It does not bring back the constants, since the twin has others.
  double RunTwin() {
    const Clock::time_point begin = Clock::now();
    CacheState::WriteFromAllCores(warm_);
    twin_->Run();
    return SecondsSince(begin);
  }

  void RunEvicted(CacheState* caches, const Limits& limits, double* patience) {
    const Clock::time_point begin = Clock::now();
    caches->Evict();
    Run(SecondsSince(begin), limits, patience);
  }

  double Allowed(const Limits& limits) const {
    return limits.max_seconds * (seconds_.size() + disturbed_.size() < kMinRuns ? kMinRunsFactor : 1);
  }

  Call call_;
  std::optional<Call> twin_;
  Calm calm_;
  Array<Tensor> warm_;
  std::vector<double> seconds_;
  std::vector<double> disturbed_;
  double spent_ = 0;   // for runs that count
  double waited_ = 0;  // for runs that do not count, and for the machine
  Interval interval_{0, 0, 0};
};

class Comparison {
 public:
  Comparison(std::vector<Runner> runners, const Limits& limits, int64_t evict_bytes, bool evict_each_run)
      : runners_(std::move(runners)),
        limits_(limits),
        caches_(evict_bytes),
        evict_each_run_(evict_each_run),
        patience_(kPatienceTogether * limits.max_seconds) {
    for (Runner& runner : runners_) groups_[runner.rivals].push_back(&runner);
  }

  void Run() {
    for (Runner& runner : runners_) runner.WarmUp(limits_.max_warmup_seconds);
    for (size_t round = 1; Active() > 0; ++round) {
      RunRound(round % 2 == 0);
      Eliminate();
    }
  }

  const std::vector<Runner>& runners() const { return runners_; }

 private:
  size_t Active() const {
    return std::count_if(runners_.begin(), runners_.end(),
                         [](const Runner& runner) { return runner.active; });
  }

  // One eviction serves a whole round: memory that only one kernel uses was last used a round ago. Rivals run
  // in alternating order. Groups keep theirs: otherwise a kernel could run twice before the other groups have
  // run.
  void RunRound(bool backwards) {
    const Clock::time_point begin = Clock::now();
    if (!evict_each_run_) caches_.Evict();
    const double share = SecondsSince(begin) / static_cast<double>(Active());
    for (const auto& [rivals, group] : groups_) {
      for (size_t i = 0; i < group.size(); ++i) {
        Runner* runner = group[backwards ? group.size() - 1 - i : i];
        if (!runner->active) continue;
        if (evict_each_run_) {
          runner->TakeTurn(&caches_, limits_, &patience_);
        } else {
          runner->Run(share, limits_, &patience_);
        }
      }
    }
  }

  void Eliminate() {
    for (const auto& [rivals, group] : groups_) EliminateAmong(group);
  }

  // Stops runners that have used their budget, or have an interval above the fastest rival's. Stops the whole
  // group once the intervals of all others are narrow enough.
  void EliminateAmong(const std::vector<Runner*>& group) const {
    for (Runner* runner : group) {
      if (runner->active) runner->Estimate(limits_);
      if (runner->IsOverBudget(limits_)) runner->active = false;
    }
    const bool few = std::any_of(group.begin(), group.end(), [&](const Runner* runner) {
      return runner->active && runner->calm_runs() < limits_.min_runs;
    });
    if (few) return;
    const double bound = BestUpperBound(group);
    bool decided = true;
    for (Runner* runner : group) {
      if (runner->interval().low > bound) runner->active = false;  // certainly slower than the fastest
      decided = decided && (!runner->active || runner->interval().Error() <= limits_.tolerance);
    }
    if (!decided) return;
    for (Runner* runner : group) runner->active = false;
  }

  // The upper end of the interval of the fastest runner.
  static double BestUpperBound(const std::vector<Runner*>& group) {
    const auto fastest = std::min_element(group.begin(), group.end(), [](const Runner* a, const Runner* b) {
      return a->interval().estimate < b->interval().estimate;
    });
    return (*fastest)->interval().high;
  }

  std::vector<Runner> runners_;
  std::map<int64_t, std::vector<Runner*>> groups_;
  Limits limits_;
  CacheState caches_;
  bool evict_each_run_;
  double patience_;
};

// For each function the seconds of each run, and whether other work has made them doubtful. Every function
// runs at least once. `twins`: for each function nothing, or another instance of it, which is called with
// `twin_args`.
Array<Any> TimeInTurns(Array<Function> functions, Array<Array<Any>> args, Array<Array<Tensor>> warm,
                       Array<Optional<Function>> twins, Array<Array<Any>> twin_args, Array<int64_t> rivals,
                       double percentile, double confidence, double tolerance, int64_t min_runs,
                       int64_t max_runs, double max_seconds, double max_warmup_seconds, int64_t evict_bytes,
                       bool evict_each_run) {
  const Limits limits{
      percentile,  confidence,        tolerance, static_cast<size_t>(min_runs), static_cast<size_t>(max_runs),
      max_seconds, max_warmup_seconds};
  std::vector<Runner> runners;
  for (size_t i = 0; i < functions.size(); ++i) {
    std::optional<Call> twin;
    if (const Optional<Function> other = twins[i]) twin.emplace(*other, twin_args[i]);
    runners.emplace_back(Call(functions[i], args[i]), std::move(twin), warm[i], rivals[i]);
  }
  Comparison comparison(std::move(runners), limits, evict_bytes, evict_each_run);
  comparison.Run();
  Array<Any> timed;
  for (const Runner& runner : comparison.runners()) {
    const std::vector<double> samples = runner.Samples();
    timed.push_back(Array<double>(samples.begin(), samples.end()));
    timed.push_back(runner.IsDoubtful(limits));
  }
  return timed;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("collage.runtime.time_in_turns", TimeInTurns);
}

}  // namespace
}  // namespace collage
