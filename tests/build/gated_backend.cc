// A backend of kind "collage.gated": its programs compute nothing, and a test decides when they are compiled
// and when more threads are allowed.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/executable.h"
#include "base/pool.h"

namespace {

std::mutex mutex;
std::condition_variable changed;
bool is_open = true;
int begun = 0;
int allowed_in_run = 0, used_in_run = 0;

class Nothing final : public collage::Executable {
 public:
  void Run(std::byte* const* /*arguments*/) final {
    if (allowed_in_run != 0) collage::SetNumThreads(allowed_in_run);
    used_in_run = collage::NumThreads();
  }
  std::string Implementations() final { return "  nothing\n"; }
};

std::unique_ptr<collage::Executable> Compile(const collage::Program& /*program*/,
                                             const std::byte* /*constants*/) {
  std::unique_lock<std::mutex> lock(mutex);
  ++begun;
  changed.wait(lock, [] { return is_open; });
  return std::make_unique<Nothing>();
}

void SetOpen(bool open) {
  std::lock_guard<std::mutex> lock(mutex);
  is_open = open;
  changed.notify_all();
}

// Without Python, which waits while one of its threads forks the process.
void OpenSoon(double seconds) {
  std::thread([seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    SetOpen(true);
  }).detach();
}

int Begun() {
  std::lock_guard<std::mutex> lock(mutex);
  return begun;
}

// The threads that the last run would use.
int UsedInRun() { return used_in_run; }

// Runs allow so many threads, as another thread may do at any time; 0: none does.
void AllowInRun(int threads) { allowed_in_run = threads; }

TVM_FFI_STATIC_INIT_BLOCK() {
  static const collage::Backend backend{"collage.gated", Compile};
  collage::RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef()
      .def("collage.gated.set_open", SetOpen)
      .def("collage.gated.open_soon", OpenSoon)
      .def("collage.gated.begun", Begun)
      .def("collage.gated.allow_in_run", AllowInRun)
      .def("collage.gated.used_in_run", UsedInRun);
}

}  // namespace
