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

// How long a loop takes, and whether its tasks use a barrier. Both decide into how many tasks the loop is
// cut. It is one word, so threads that share an entry of the table see all of it, and of one loop.
struct Known {
  static constexpr uint64_t kTimedRuns = 3;
  static constexpr int kTasksPerThread = 8;
  // A task costs about ten nanoseconds and an attempt to steal about a hundred: together about 1 % of this
  // time.
  static constexpr Clock::duration kLongLoop = std::chrono::microseconds(30);

  bool IsTimed() const { return timed == kTimedRuns; }

  // Whether one thread may run all tasks, one after the other: they are known not to wait for each other.
  bool MayRunAlone() const { return IsTimed() && has_barrier == 0; }

  // Into how many tasks the share of each thread is cut. Tasks that wait for each other need a thread each.
  int TasksPerThread() const { return MayRunAlone() && is_short == 0 ? kTasksPerThread : 1; }

  uint64_t loop : 48;  // its address; a loop at a longer one is always new
  uint64_t timed : 2;
  uint64_t is_short : 1;  // at least one run was
  uint64_t has_barrier : 1;
  uint64_t unused : 12;
};

using Entry = std::atomic<Known>;
static_assert(Entry::is_always_lock_free, "a loop must not wait for a lock to begin");

// A hash table without chains. Two loops that share an entry are timed again whenever they alternate, which
// is slower but not wrong.
std::array<Entry, 4096> known_loops;

uint64_t AddressOf(ParallelLambda loop) { return reinterpret_cast<uintptr_t>(loop); }

Entry& EntryOf(ParallelLambda loop) {
  const uint64_t address = AddressOf(loop);
  return known_loops[(address >> 4 ^ address >> 16) % known_loops.size()];
}

// What is known of `loop` if its entry is `entry`.
Known Of(ParallelLambda loop, const Known& entry) {
  if (entry.loop == AddressOf(loop)) return entry;
  Known nothing{};
  nothing.loop = AddressOf(loop);
  return nothing;
}

Known Recorded(ParallelLambda loop) { return Of(loop, EntryOf(loop).load(std::memory_order_relaxed)); }

// Adds a run of a loop to its entry, which may be that of another loop by now.
void Record(ParallelLambda loop, Clock::duration run, bool has_barrier) {
  Entry& entry = EntryOf(loop);
  Known before = entry.load(std::memory_order_relaxed), after{};
  do {
    after = Of(loop, before);
    after.timed = std::min<uint64_t>(after.timed + 1, Known::kTimedRuns);
    after.is_short |= run < Known::kLongLoop ? 1 : 0;
    after.has_barrier |= has_barrier ? 1 : 0;
  } while (!entry.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

// Where all tasks of a group wait for each other. It is reusable: each use is a round of its own.
class Barrier {
 public:
  // False when a task failed and will therefore never arrive.
  bool Wait(int tasks) {
    is_used_.store(true, std::memory_order_relaxed);
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

  bool IsUsed() const { return is_used_.load(std::memory_order_relaxed); }
  void Break() { broken_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> is_used_{false};
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
  Launch(ParallelLambda lambda, void* data) : lambda_(lambda), data_(data) {}

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

  bool HasBarrier() const { return barrier_.IsUsed(); }
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
  const Known known = Recorded(lambda);
  Launch launch(lambda, data);
  const Alone alone(known.MayRunAlone() ? threads : 1);
  if (alone) {
    launch.RunStrided(0, 1, tasks == 0 ? threads : tasks);
    return launch.Finish();
  }
  const int tasks_per_thread = tasks == 0 && threads > 1 ? known.TasksPerThread() : 1;
  if (tasks_per_thread > 1) {
    launch.RunStealing(threads, tasks_per_thread);
    return launch.Finish();
  }
  const auto run = [&] {
    OnTeam(threads,
           [&](TeamRank rank) { launch.RunStrided(rank.index, rank.size, tasks == 0 ? threads : tasks); });
  };
  if (known.IsTimed()) {
    run();
    return launch.Finish();
  }
  const Clock::time_point begin = Clock::now();
  run();
  Record(lambda, Clock::now() - begin, launch.HasBarrier());
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

void ForgetLoops() {
  for (Entry& entry : known_loops) entry.store(Known{}, std::memory_order_relaxed);
}

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
