#include "base/pool.h"

#include <omp.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <atomic>

namespace collage {
namespace {

std::atomic<int>& Wanted() {
  static std::atomic<int> wanted{omp_get_max_threads()};
  return wanted;
}

}  // namespace

int NumThreads() { return Wanted().load(std::memory_order_relaxed); }

void SetNumThreads(int n) {
  if (n < 1) TVM_FFI_THROW(ValueError) << "the number of threads must be at least 1, not " << n;
  Wanted().store(n, std::memory_order_relaxed);
  AdoptNumThreads();
}

void AdoptNumThreads() {
  const int wanted = NumThreads();
  if (omp_get_max_threads() != wanted && !omp_in_parallel()) omp_set_num_threads(wanted);
}

bool InParallelRegion() { return omp_in_parallel() != 0; }

TVM_FFI_STATIC_INIT_BLOCK() {
  Wanted();  // asked while the library is loaded, before anybody changes OpenMP's own setting
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.num_threads", NumThreads)
      .def("collage.runtime.set_num_threads", SetNumThreads);
}

}  // namespace collage
