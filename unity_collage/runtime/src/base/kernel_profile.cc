// The per-kernel profile: an instrumented program records the time between its kernels.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <chrono>
#include <vector>

namespace collage {
namespace {

using tvm::ffi::Array;
using Clock = std::chrono::steady_clock;

// Instrumented programs run one at a time, in a worker process of their own, so one list is enough.
std::vector<Clock::time_point>& Timestamps() {
  static std::vector<Clock::time_point> timestamps;
  return timestamps;
}

void Start(int64_t capacity) {
  Timestamps().clear();
  Timestamps().reserve(static_cast<size_t>(capacity));
}

void Mark() { Timestamps().push_back(Clock::now()); }

// Seconds from each mark to the next.
Array<double> Read() {
  Array<double> seconds;
  const std::vector<Clock::time_point>& timestamps = Timestamps();
  for (size_t i = 1; i < timestamps.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(timestamps[i] - timestamps[i - 1]).count());
  }
  return seconds;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("collage.profile.start", Start)
      .def("collage.profile.mark", Mark)
      .def("collage.profile.read", Read);
}

}  // namespace
}  // namespace collage
