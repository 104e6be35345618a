#include "base/pool.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <atomic>
#include <cstdlib>

#include "base/cores.h"

namespace collage {
namespace {

constexpr int64_t kMostThreads = 1024;  // as MOST_THREADS of defaults.py

int FirstNumThreads() {
  for (const char* name : {"TVM_NUM_THREADS", "OMP_NUM_THREADS"}) {  // in the order of TVM's own pool
    const char* wanted = std::getenv(name);  // OpenMP's may be a list: its first number
    const int64_t threads = wanted == nullptr ? 0 : std::strtoll(wanted, nullptr, 10);
    if (threads >= 1) return static_cast<int>(std::min(threads, kMostThreads));
  }
  return ThreadsForCores("");
}

std::atomic<int>& Wanted() {
  static std::atomic<int> wanted{FirstNumThreads()};
  return wanted;
}

// A number as callers give it, which may be too large for an int.
void SetCheckedNumThreads(int64_t n) {
  if (n < 1 || n > kMostThreads) {
    TVM_FFI_THROW(ValueError) << "the number of threads must be from 1 to " << kMostThreads << ", not " << n;
  }
  Wanted().store(static_cast<int>(n), std::memory_order_relaxed);
}

constexpr int kNoLimit = 0;
thread_local int limit = kNoLimit;

}  // namespace

int NumThreads() {
  const int wanted = Wanted().load(std::memory_order_relaxed);
  return limit == kNoLimit ? wanted : std::min(limit, wanted);
}

ThreadLimit::ThreadLimit(int threads) : outer_limit_(limit) {
  if (threads != kNoLimit && (limit == kNoLimit || threads < limit)) limit = threads;
}

ThreadLimit::~ThreadLimit() { limit = outer_limit_; }

void SetNumThreads(int n) { SetCheckedNumThreads(n); }

TVM_FFI_STATIC_INIT_BLOCK() {
  Wanted();  // reads the environment and the machine while the library is loaded, before they may change
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.num_threads", NumThreads)
      .def("collage.runtime.set_num_threads", SetCheckedNumThreads)
      .def("collage.runtime.park_workers", ParkWorkers);
}

}  // namespace collage
