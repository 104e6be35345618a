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
#include "base/shares.h"

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

// What is known of a loop that was launched before.
class KnownLoop {
 public:
  void Become(ParallelLambda loop) {
    if (loop_.load(std::memory_order_relaxed) == loop) return;
    loop_.store(loop, std::memory_order_relaxed);
    best_.store(Clock::duration::max(), std::memory_order_relaxed);
    timed_.store(0, std::memory_order_relaxed);
    has_barrier_.store(false, std::memory_order_relaxed);
  }

  bool IsTimed() const { return timed_.load(std::memory_order_relaxed) >= kTimedRuns; }

  void Time(Clock::duration run) {
    if (run < best_.load(std::memory_order_relaxed)) best_.store(run, std::memory_order_relaxed);
    timed_.fetch_add(1, std::memory_order_relaxed);
  }

  void NoteBarrier() { has_barrier_.store(true, std::memory_order_relaxed); }

  // Into how many pieces the share of each thread is cut. Tasks that meet need a thread each.
  int Pieces() const {
    const bool is_long = IsTimed() && best_.load(std::memory_order_relaxed) >= kLong;
    return is_long && !has_barrier_.load(std::memory_order_relaxed) ? kPieces : 1;
  }

 private:
  static constexpr int kTimedRuns = 3;
  static constexpr int kPieces = 8;
  // A piece costs some ten nanoseconds, the look at another thread's share a hundred: 1 % of this.
  static constexpr Clock::duration kLong = std::chrono::microseconds(30);

  std::atomic<ParallelLambda> loop_{nullptr};
  std::atomic<Clock::duration> best_{Clock::duration::max()};
  std::atomic<int> timed_{0};
  std::atomic<bool> has_barrier_{false};
};

// A loop that shares its entry with another is timed anew whenever they alternate: slower, not wrong.
KnownLoop& Known(ParallelLambda loop) {
  static std::array<KnownLoop, 4096> known;
  const auto address = reinterpret_cast<uintptr_t>(loop);
  KnownLoop& entry = known[(address >> 4 ^ address >> 16) % known.size()];
  entry.Become(loop);
  return entry;
}

// Where all tasks of a group wait for each other; reusable, because the round counts up.
class Barrier {
 public:
  explicit Barrier(KnownLoop* loop) : loop_(loop) {}

  // False when a task failed and will therefore never arrive.
  bool Wait(int tasks) {
    loop_->NoteBarrier();
    const int round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
    }
    Patience patience;
    while (round_.load(std::memory_order_acquire) == round && !broken_.load(std::memory_order_relaxed)) {
      patience.Wait();
    }
    return !broken_.load(std::memory_order_relaxed);
  }

  void Break() { broken_.store(true, std::memory_order_relaxed); }

 private:
  KnownLoop* loop_;
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
  std::atomic<bool> broken_{false};
};

// The first error of any task. Errors are kept per thread by TVM, so a worker's must be carried over.
class FirstError {
 public:
  void Take(Error error) {
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

// One launch: what its tasks run and share.
class Launch {
 public:
  Launch(ParallelLambda lambda, void* data, KnownLoop* loop) : lambda_(lambda), data_(data), barrier_(loop) {}

  // Every team-th task, beginning with `first`.
  void RunEach(int first, int team, int tasks) {
    // Only when each task has a thread of its own can they meet at a barrier.
    ParallelGroup group{tasks == team ? &barrier_ : nullptr, tasks};
    for (int task = first; task < tasks; task += team) RunTask(task, &group);
  }

  void RunPieces(int threads, int pieces) {
    ParallelGroup group{nullptr, threads * pieces};
    ParallelPieces(group.num_task, threads, [&](int piece, TeamPlace) { RunTask(piece, &group); });
  }

  int Finish() const { return errors_.Raise(); }

 private:
  void RunTask(int task, ParallelGroup* group) {
    try {
      if (lambda_(task, group, data_) == 0) return;
      errors_.Take(tvm::ffi::details::MoveFromSafeCallRaised());
    } catch (const Error& error) {
      errors_.Take(error);
    } catch (const std::exception& error) {
      errors_.Take(Error("InternalError", error.what(), ""));
    }
    barrier_.Break();
  }

  ParallelLambda lambda_;
  void* data_;
  Barrier barrier_;
  FirstError errors_;
};

int ParallelLaunch(ParallelLambda lambda, void* data, int tasks) {
  const int threads = InParallelRegion() ? 1 : tasks == 0 ? NumThreads() : std::min(tasks, NumThreads());
  KnownLoop& known = Known(lambda);
  Launch launch(lambda, data, &known);
  const int pieces = tasks == 0 && threads > 1 ? known.Pieces() : 1;
  if (pieces > 1) {
    launch.RunPieces(threads, pieces);
    return launch.Finish();
  }
  const auto run = [&] {
    // No number of tasks is one a thread.
    OnTeam(threads, [&](TeamPlace place) { launch.RunEach(place.index, place.size, tasks == 0 ? threads : tasks); });
  };
  if (known.IsTimed()) {
    run();
    return launch.Finish();
  }
  const Clock::time_point begin = Clock::now();
  run();
  known.Time(Clock::now() - begin);
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

// The address that a library loaded now would get for `symbol`.
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
