// The timing loop for one function: calls it many times and returns the seconds of each run.
#include <tvm/ffi/reflection/registry.h>

#include "base/cache_state.h"
#include "base/call.h"
#include "base/pool.h"

namespace collage {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Tensor;

// Stops when there are min_runs and min_seconds of measured time, or at max_runs.
Array<double> Measure(Function function, Array<Any> args, Array<Tensor> warm, double warmup_seconds,
                      int64_t min_runs, int64_t max_runs, double min_seconds, int64_t calls_per_run,
                      int64_t evict_bytes) {
  Call call(std::move(function), args);
  CacheState caches(evict_bytes);
  const Clock::time_point begin = Clock::now();
  do call.Run();
  while (SecondsSince(begin) < warmup_seconds);
  std::vector<double> seconds;
  double total = 0;
  while (static_cast<int64_t>(seconds.size()) < max_runs &&
         (static_cast<int64_t>(seconds.size()) < min_runs || total < min_seconds)) {
    caches.Evict();
    CacheState::WriteFromAllCores(warm);
    const double elapsed = call.Seconds(calls_per_run);
    seconds.push_back(elapsed / static_cast<double>(calls_per_run));
    total += elapsed;
  }
  return Array<double>(seconds.begin(), seconds.end());
}

TVM_FFI_STATIC_INIT_BLOCK() { tvm::ffi::reflection::GlobalDef().def("collage.runtime.measure", Measure); }

}  // namespace
}  // namespace collage
