#include "base/pool.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <atomic>
#include <cstdlib>

#include "base/cores.h"

namespace collage {
namespace {

int FirstNumThreads() {
  for (const char* name : {"TVM_NUM_THREADS", "OMP_NUM_THREADS"}) {  // in the order of TVM's own pool
    const char* wanted = std::getenv(name);  // OpenMP's may be a list: atoi reads its first number
    const int threads = wanted == nullptr ? 0 : std::atoi(wanted);
    if (threads >= 1) return threads;
  }
  return ThreadsForCores("");
}

std::atomic<int>& Wanted() {
  static std::atomic<int> wanted{FirstNumThreads()};
  return wanted;
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

void SetNumThreads(int n) {
  if (n < 1) TVM_FFI_THROW(ValueError) << "the number of threads must be at least 1, not " << n;
  Wanted().store(n, std::memory_order_relaxed);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  Wanted();  // reads the environment and the machine while the library is loaded, before they may change
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.num_threads", NumThreads)
      .def("collage.runtime.set_num_threads", SetNumThreads)
      .def("collage.runtime.park_workers", ParkWorkers);
}

}  // namespace collage
