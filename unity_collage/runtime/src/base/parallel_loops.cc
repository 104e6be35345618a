#include "base/parallel_loops.h"

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/pool.h"
#include "base/work_stealing.h"

namespace collage {
namespace {

using Clock = std::chrono::steady_clock;
using tvm::ffi::Error;

constexpr const char* kLaunchSymbol = "__TVMBackendParallelLaunch";
constexpr const char* kBarrierSymbol = "__TVMBackendParallelBarrier";

// The layout that TVM's code generator gives to TVMParallelGroupEnv.
struct ParallelGroup {
  void* sync_handle;
  int32_t num_task;
};
using ParallelLambda = int (*)(int task, ParallelGroup* group, void* data);

// Raised when records of loops no longer hold.
std::atomic<uint32_t> generation{0};

// How long a loop takes, and whether its tasks use a barrier. Both decide into how many tasks the loop is
// cut.
class LoopProfile {
 public:
  // Forgets what was recorded of another loop.
  void BindTo(ParallelLambda loop) {
    const uint32_t now = generation.load(std::memory_order_relaxed);
    if (loop_.load(std::memory_order_relaxed) == loop && generation_.load(std::memory_order_relaxed) == now)
      return;
    loop_.store(loop, std::memory_order_relaxed);
    generation_.store(now, std::memory_order_relaxed);
    best_.store(Clock::duration::max(), std::memory_order_relaxed);
    timed_.store(0, std::memory_order_relaxed);
    has_barrier_.store(false, std::memory_order_relaxed);
  }

  bool IsTimed() const { return timed_.load(std::memory_order_relaxed) >= kTimedRuns; }

  void Record(Clock::duration run) {
    if (run < best_.load(std::memory_order_relaxed)) best_.store(run, std::memory_order_relaxed);
    timed_.fetch_add(1, std::memory_order_relaxed);
  }

  void NoteBarrier() { has_barrier_.store(true, std::memory_order_relaxed); }

  // Whether one thread may run all tasks, one after the other: they are known not to wait for each other.
  bool MayRunAlone() const { return IsTimed() && !has_barrier_.load(std::memory_order_relaxed); }

  // Into how many tasks the share of each thread is cut. Tasks that wait for each other need a thread each.
  int TasksPerThread() const {
    const bool is_long = IsTimed() && best_.load(std::memory_order_relaxed) >= kLongLoop;
    return is_long && !has_barrier_.load(std::memory_order_relaxed) ? kTasksPerThread : 1;
  }

 private:
  static constexpr int kTimedRuns = 3;
  static constexpr int kTasksPerThread = 8;
  // A task costs about ten nanoseconds and an attempt to steal about a hundred: together about 1 % of this
  // time.
  static constexpr Clock::duration kLongLoop = std::chrono::microseconds(30);

  std::atomic<ParallelLambda> loop_{nullptr};
  std::atomic<uint32_t> generation_{0};
  std::atomic<Clock::duration> best_{Clock::duration::max()};
  std::atomic<int> timed_{0};
  std::atomic<bool> has_barrier_{false};
};

// The entry of a hash table without chains. Two loops that share an entry are timed again whenever they
// alternate, which is slower but not wrong.
LoopProfile& ProfileOf(ParallelLambda loop) {
  static std::array<LoopProfile, 4096> profiles;
  const auto address = reinterpret_cast<uintptr_t>(loop);
  LoopProfile& entry = profiles[(address >> 4 ^ address >> 16) % profiles.size()];
  entry.BindTo(loop);
  return entry;
}

// Where all tasks of a group wait for each other. It is reusable: each use is a round of its own.
class Barrier {
 public:
  explicit Barrier(LoopProfile* loop) : loop_(loop) {}

  // False when a task failed and will therefore never arrive.
  bool Wait(int tasks) {
    loop_->NoteBarrier();
    const int round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
    }
    Backoff backoff;
    while (round_.load(std::memory_order_acquire) == round && !broken_.load(std::memory_order_relaxed)) {
      backoff.Wait();
    }
    return !broken_.load(std::memory_order_relaxed);
  }

  void Break() { broken_.store(true, std::memory_order_relaxed); }

 private:
  LoopProfile* loop_;
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
  std::atomic<bool> broken_{false};
};

// The first error of any task. TVM keeps errors per thread, so a worker's error is passed to the caller.
class FirstError {
 public:
  void Record(Error error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.has_value()) error_ = std::move(error);
  }

  int Raise() const {
    if (!error_.has_value()) return 0;
    tvm::ffi::details::SetSafeCallRaised(*error_);
    return -1;
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

// One launch of a loop: what its tasks run and share.
class Launch {
 public:
  Launch(ParallelLambda lambda, void* data, LoopProfile* loop)
      : lambda_(lambda), data_(data), barrier_(loop) {}

  // Every team-th task, beginning with `first`.
  void RunStrided(int first, int team, int tasks) {
    // Tasks can wait for each other only when each has a thread of its own.
    ParallelGroup group{tasks == team ? &barrier_ : nullptr, tasks};
    for (int task = first; task < tasks; task += team) RunTask(task, &group);
  }

  void RunStealing(int threads, int tasks_per_thread) {
    ParallelGroup group{nullptr, threads * tasks_per_thread};
    ParallelTasks(group.num_task, threads, [&](int task, TeamRank) { RunTask(task, &group); });
  }

  int Finish() const { return errors_.Raise(); }

 private:
  void RunTask(int task, ParallelGroup* group) {
    try {
      if (lambda_(task, group, data_) == 0) return;
      errors_.Record(tvm::ffi::details::MoveFromSafeCallRaised());
    } catch (const Error& error) {
      errors_.Record(error);
    } catch (const std::exception& error) {
      errors_.Record(Error("InternalError", error.what(), ""));
    }
    barrier_.Break();
  }

  ParallelLambda lambda_;
  void* data_;
  Barrier barrier_;
  FirstError errors_;
};

// Runs a loop of `tasks` tasks; 0 leaves the number to the pool, which makes one for each thread, or several
// of a long loop.
int ParallelLaunch(ParallelLambda lambda, void* data, int tasks) {
  const int threads = InParallelRegion() ? 1 : tasks == 0 ? NumThreads() : std::min(tasks, NumThreads());
  LoopProfile& profile = ProfileOf(lambda);
  Launch launch(lambda, data, &profile);
  const Alone alone(profile.MayRunAlone() ? threads : 1);
  if (alone) {
    launch.RunStrided(0, 1, tasks == 0 ? threads : tasks);
    return launch.Finish();
  }
  const int tasks_per_thread = tasks == 0 && threads > 1 ? profile.TasksPerThread() : 1;
  if (tasks_per_thread > 1) {
    launch.RunStealing(threads, tasks_per_thread);
    return launch.Finish();
  }
  const auto run = [&] {
    OnTeam(threads,
           [&](TeamRank rank) { launch.RunStrided(rank.index, rank.size, tasks == 0 ? threads : tasks); });
  };
  if (profile.IsTimed()) {
    run();
    return launch.Finish();
  }
  const Clock::time_point begin = Clock::now();
  run();
  profile.Record(Clock::now() - begin);
  return launch.Finish();
}

int ParallelBarrier(int /*task*/, ParallelGroup* group) {
  if (group->sync_handle == nullptr) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "a barrier needs a thread for each of its tasks");
    return -1;
  }
  if (static_cast<Barrier*>(group->sync_handle)->Wait(group->num_task)) return 0;
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "another task of the parallel loop failed before the barrier");
  return -1;
}

// The address that a library would get for `symbol` if it were loaded now.
void* Registered(std::string_view symbol) {
  void* found = nullptr;
  tvm::ffi::Module::VisitContextSymbols([&](tvm::ffi::String name, void* address) {
    if (std::string_view(name.data(), name.size()) == symbol) found = address;
  });
  return found;
}

void Claim(const char* symbol, void* address) {
  if (Registered(symbol) == address) return;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol(symbol, address));
}

}  // namespace

void ForgetLoops() { generation.fetch_add(1, std::memory_order_relaxed); }

bool OwnsParallelLoops() { return Registered(kLaunchSymbol) == reinterpret_cast<void*>(ParallelLaunch); }

void ClaimParallelLoops() {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  Claim(kLaunchSymbol, reinterpret_cast<void*>(ParallelLaunch));
  Claim(kBarrierSymbol, reinterpret_cast<void*>(ParallelBarrier));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ClaimParallelLoops();
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.claim_parallel_loops", ClaimParallelLoops)
      .def("collage.runtime.owns_parallel_loops", OwnsParallelLoops);
}

}  // namespace collage
