#include "base/parallel_loops.h"

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/pool.h"

namespace collage {
namespace {

using tvm::ffi::Error;

constexpr const char* kLaunchSymbol = "__TVMBackendParallelLaunch";
constexpr const char* kBarrierSymbol = "__TVMBackendParallelBarrier";

// The layout that TVM's code generator gives to TVMParallelGroupEnv.
struct ParallelGroup {
  void* sync_handle;
  int32_t num_task;
};
using ParallelLambda = int (*)(int task, ParallelGroup* group, void* data);

// Where all tasks of a group wait for each other; reusable, because the round counts up.
class Barrier {
 public:
  // False when a task failed and will therefore never arrive.
  bool Wait(int tasks) {
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
  Launch(ParallelLambda lambda, void* data) : lambda_(lambda), data_(data) {}

  // Runs every team-th task, beginning with `first`; tasks == 0 means one task a thread of the team.
  void RunShare(int first, int team, int tasks) {
    const int count = tasks == 0 ? team : tasks;
    // Only when each task has a thread of its own can they meet at a barrier.
    ParallelGroup group{count == team ? &barrier_ : nullptr, count};
    for (int task = first; task < count; task += team) RunTask(task, &group);
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
  Launch launch(lambda, data);
  const int threads = tasks == 0 ? NumThreads() : std::min(tasks, NumThreads());
  OnTeam(threads, [&](TeamPlace place) { launch.RunShare(place.index, place.size, tasks); });
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
