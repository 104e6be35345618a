// A backend of kind "collage.gated": its programs do nothing, and a test decides when they are compiled.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/executable.h"

namespace {

std::mutex mutex;
std::condition_variable changed;
bool is_open = true;
int begun = 0;

class Nothing final : public collage::Executable {
 public:
  void Run(std::byte* const* /*arguments*/) final {}
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

int Begun() {
  std::lock_guard<std::mutex> lock(mutex);
  return begun;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  static const collage::Backend backend{"collage.gated", Compile};
  collage::RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef().def("collage.gated.set_open", SetOpen).def("collage.gated.begun", Begun);
}

}  // namespace
