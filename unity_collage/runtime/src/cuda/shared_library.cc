#include "cuda/shared_library.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

namespace collage::cuda {

SharedLibrary::SharedLibrary(const std::string& soname)
    : soname_(soname), handle_(dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    const char* reason = dlerror();
    TVM_FFI_THROW(RuntimeError) << (reason == nullptr ? soname + " cannot be opened" : reason);
  }
}

void* SharedLibrary::Address(const std::string& name) const {
  void* found = dlsym(handle_, name.c_str());
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << soname_ << " has no function " << name;
  return found;
}

}  // namespace collage::cuda
