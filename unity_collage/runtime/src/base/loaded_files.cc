#include "base/loaded_files.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/parallel_loops.h"
#include "base/seal.h"

namespace collage {
namespace {

using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::ModuleObj;
using tvm::ffi::String;

constexpr std::chrono::milliseconds kPause{1};
constexpr int kPauses = 1000;

struct Loaded {
  tvm::ffi::WeakObjectPtr<ModuleObj> module;
  std::string state;
};

// A path of the same file that no call has returned before. The loader knows files by name, and a name may be
// that of another file by now. The binary digits of a number are slashes in front.
std::string NewNameOf(const std::string& path) {
  static uint64_t count = 0;
  std::string digits;
  for (uint64_t left = ++count; left > 0; left /= 2) digits += left % 2 == 1 ? "/." : "//.";
  return digits + path;
}

bool IsMapped(const std::string& path) {
  void* library = dlopen(NewNameOf(path).c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

// Waits until the library of a module that nothing refers to is unmapped: another thread may be freeing it.
// False if it stays, since something else has loaded the file or holds a part of it.
bool IsUnmapped(const std::string& path) {
  for (int i = 0; i < kPauses; ++i) {
    if (!IsMapped(path)) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

Module LoadNow(const std::string& path) {
  const bool is_alone = IsUnmapped(path);
  const Module module =
      Function::GetGlobalRequired("ffi.Module.load_from_file.so")(NewNameOf(path), "so").cast<Module>();
  // Code that was loaded before calls functions of the module that came first, and code of that one may call
  // functions of this one.
  if (!is_alone) Function::GetGlobalRequired("ffi.ModuleGlobalsAdd")(module);
  ForgetLoops();  // code may be where that of another library was
  return module;
}

}  // namespace

std::optional<Module> LoadedFile(const std::string& path, const std::string& state) {
  static std::mutex mutex;
  static auto* files = new std::map<std::pair<dev_t, ino_t>, Loaded>;  // modules may be loaded until the end
  const std::lock_guard<std::mutex> lock(mutex);
  struct stat status;
  if (stat(path.c_str(), &status) != 0) TVM_FFI_THROW(RuntimeError) << path << ": " << std::strerror(errno);
  Loaded& file = (*files)[{status.st_dev, status.st_ino}];
  if (tvm::ffi::ObjectPtr<ModuleObj> module = file.module.lock(); module != nullptr) {
    if (file.state != state) return std::nullopt;
    return Module(std::move(module));
  }
  const Module loaded = LoadNow(path);
  file = {tvm::ffi::GetObjectPtr<ModuleObj>(const_cast<ModuleObj*>(loaded.operator->())), state};
  return loaded;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "collage.runtime.loaded_file", [](String path) -> tvm::ffi::Optional<Module> {
        const std::optional<Module> module = LoadedFile(path, SealOf(path));
        return module.has_value() ? tvm::ffi::Optional<Module>(*module) : std::nullopt;
      });
}

}  // namespace collage
