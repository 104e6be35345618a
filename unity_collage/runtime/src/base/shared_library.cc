#include "base/shared_library.h"

#include <dlfcn.h>
#include <link.h>
#include <tvm/ffi/error.h>

#include <algorithm>

namespace collage {

SharedLibrary::SharedLibrary(const std::string& soname)
    : soname_(soname), handle_(dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    const char* reason = dlerror();
    TVM_FFI_THROW(RuntimeError) << (reason == nullptr ? soname + " cannot be opened" : reason);
  }
}

SharedLibrary SharedLibrary::Mapped(const std::string& prefix) {
  for (const std::string& path : MappedLibraries()) {
    if (FileNameOf(path).rfind(prefix, 0) == 0) return SharedLibrary(path);
  }
  return SharedLibrary(prefix);
}

void* SharedLibrary::Address(const std::string& name) const {
  void* found = dlsym(handle_, name.c_str());
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << soname_ << " has no function " << name;
  return found;
}

std::string FileNameOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::vector<std::string> MappedLibraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string name = info->dlpi_name;  // empty for the program itself
        if (!name.empty()) static_cast<std::vector<std::string>*>(found)->push_back(name);
        return 0;
      },
      &names);
  std::reverse(names.begin(), names.end());
  return names;
}

}  // namespace collage
