// Lists the OpenMP runtimes that are mapped into the process: the thread pools of two compete for the cores.
#include <link.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace collage {
namespace {

using Paths = tvm::ffi::Array<tvm::ffi::String>;

bool IsOpenMP(std::string_view path) {
  constexpr std::array<std::string_view, 4> kNames = {"libgomp", "libiomp5", "libomp.", "libomp-"};
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return file.compare(0, name.size(), name) == 0; });
}

int Collect(dl_phdr_info* info, size_t /*size*/, void* paths) {
  if (IsOpenMP(info->dlpi_name)) static_cast<Paths*>(paths)->push_back(info->dlpi_name);
  return 0;
}

Paths OpenMPRuntimes() {
  Paths paths;
  dl_iterate_phdr(Collect, &paths);
  return paths;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("collage.runtime.openmp_runtimes", OpenMPRuntimes);
}

}  // namespace
}  // namespace collage
