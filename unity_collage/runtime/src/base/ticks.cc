// A clock that a program reads between its kernels: what each of them takes where it stands.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <chrono>
#include <vector>

namespace collage {
namespace {

using tvm::ffi::Array;
using Clock = std::chrono::steady_clock;

// Programs that are timed run one at a time, in a worker process of their own.
std::vector<Clock::time_point>& Ticks() {
  static std::vector<Clock::time_point> ticks;
  return ticks;
}

void Start(int64_t capacity) {
  Ticks().clear();
  Ticks().reserve(static_cast<size_t>(capacity));
}

void Tick() { Ticks().push_back(Clock::now()); }

// Seconds between each tick and the one before it.
Array<double> Read() {
  Array<double> seconds;
  const std::vector<Clock::time_point>& ticks = Ticks();
  for (size_t i = 1; i < ticks.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(ticks[i] - ticks[i - 1]).count());
  }
  return seconds;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("collage.ticks.start", Start)
      .def("collage.ticks.tick", Tick)
      .def("collage.ticks.read", Read);
}

}  // namespace
}  // namespace collage
