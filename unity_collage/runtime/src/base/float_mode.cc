// The floating-point mode of the pool's threads: rounding, treatment of denormals, and which exceptions are
// signals.
#include <tvm/ffi/reflection/registry.h>

#include <atomic>

#include "base/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace collage {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kFlags = 0x3f;  // of MXCSR: which exceptions have occurred, which is not a mode

int64_t FloatMode() { return _mm_getcsr() & ~kFlags; }
void SetFloatMode(int64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
#elif defined(__aarch64__)
int64_t FloatMode() {
  int64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void SetFloatMode(int64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
int64_t FloatMode() { return 0; }
void SetFloatMode(int64_t) {}
#endif

// Sets the mode of all threads of the pool, the calling thread included. Returns how many of them had another
// mode.
int64_t RestoreFloatMode(int64_t mode) {
  std::atomic<int64_t> changed{0};
  OnTeam(NumThreads(), [&](TeamRank) {
    if (FloatMode() != mode) {
      SetFloatMode(mode);
      ++changed;
    }
    WaitAtBarrier();  // otherwise a thread that is done runs the share of one that has not begun
  });
  return changed;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.float_mode", FloatMode)
      .def("collage.runtime.restore_float_mode", RestoreFloatMode);
}

}  // namespace
}  // namespace collage
