#include "kernels/isa.h"

#include <tvm/ffi/error.h>

namespace collage::kernels {
namespace {

std::vector<const Kernels*> Runnable() {
  std::vector<const Kernels*> runnable;
#ifdef __x86_64__
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512) runnable.push_back(&kAvx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) runnable.push_back(&kAvx2);
#endif
  runnable.push_back(&kPlain);
  return runnable;
}

}  // namespace

std::vector<std::string> RunnableIsas() {
  std::vector<std::string> names;
  for (const Kernels* kernels : Runnable()) names.emplace_back(kernels->isa);
  return names;
}

const Kernels& FindKernels(const std::string& isa) {
  for (const Kernels* kernels : Runnable()) {
    if (isa.empty() || isa == kernels->isa) return *kernels;
  }
  TVM_FFI_THROW(ValueError) << "this processor does not run kernels for '" << isa << "'";
  TVM_FFI_UNREACHABLE();
}

}  // namespace collage::kernels
