// The timing loop: calls a function many times and returns the seconds of each run.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <chrono>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/pool.h"

namespace collage {
namespace {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Tensor;
using Clock = std::chrono::steady_clock;

constexpr int64_t kCacheLine = 64;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Touches every cache line of a range on the pool, with `touch` for each line.
template <typename Touch>
void ForEachLine(std::byte* data, int64_t nbytes, const Touch& touch) {
  if (nbytes == 0) return;
  const int threads = NumThreads();
  const int64_t share = (nbytes / kCacheLine + threads - 1) / threads * kCacheLine;
  ParallelFor(threads, threads, [&](int64_t thread) {
    const int64_t end = std::min(nbytes, (thread + 1) * share);
    for (int64_t i = thread * share; i < end; i += kCacheLine) touch(data + i);
  });
}

// Makes a cache line the property of the core that runs this, as a store of its producer would.
void Own(std::byte* line) {
  volatile std::byte* word = line;
  *word = *word;
}

// Leaves the caches as the neighbours of a kernel do: what is not a warm tensor is pushed out by streaming over
// memory of its own, and each warm tensor is written by all cores, every core a contiguous part. A kernel that
// divides its work otherwise then fetches lines from other cores, as it will between such neighbours.
class Neighbours {
 public:
  Neighbours(int64_t nbytes, const Array<Tensor>& warm) : other_(static_cast<size_t>(nbytes)), warm_(warm) {}

  void Run() {
    ForEachLine(other_.data(), static_cast<int64_t>(other_.nbytes()), Own);
    for (const Tensor& tensor : warm_) {
      ForEachLine(static_cast<std::byte*>(tensor.data_ptr()), NumBytes(tensor), Own);
    }
  }

 private:
  static int64_t NumBytes(const Tensor& tensor) { return tensor.numel() * ((tensor.dtype().bits + 7) / 8); }

  AlignedBuffer other_;
  Array<Tensor> warm_;
};

class Call {
 public:
  Call(Function function, const Array<Any>& args) : function_(std::move(function)) {
    for (const Any& arg : args) args_.push_back(arg);
    views_.assign(args_.begin(), args_.end());
  }

  void Run(int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      Any result;
      function_.CallPacked(views_.data(), static_cast<int32_t>(views_.size()), &result);
    }
  }

 private:
  Function function_;
  std::vector<Any> args_;
  std::vector<AnyView> views_;
};

// Stops when there are min_runs and min_seconds of measured time, or at max_runs.
Array<double> Measure(Function function, Array<Any> args, Array<Tensor> warm, double warmup_seconds,
                      int64_t min_runs, int64_t max_runs, double min_seconds, int64_t calls_per_run,
                      int64_t evict_bytes) {
  AdoptNumThreads();
  Call call(std::move(function), args);
  Neighbours neighbours(evict_bytes, warm);
  const Clock::time_point begin = Clock::now();
  do call.Run(1);
  while (SecondsSince(begin) < warmup_seconds);
  std::vector<double> seconds;
  double total = 0;
  while (static_cast<int64_t>(seconds.size()) < max_runs &&
         (static_cast<int64_t>(seconds.size()) < min_runs || total < min_seconds)) {
    neighbours.Run();
    const Clock::time_point start = Clock::now();
    call.Run(calls_per_run);
    const double elapsed = SecondsSince(start);
    seconds.push_back(elapsed / static_cast<double>(calls_per_run));
    total += elapsed;
  }
  return Array<double>(seconds.begin(), seconds.end());
}

TVM_FFI_STATIC_INIT_BLOCK() { tvm::ffi::reflection::GlobalDef().def("collage.runtime.measure", Measure); }

}  // namespace
}  // namespace collage
