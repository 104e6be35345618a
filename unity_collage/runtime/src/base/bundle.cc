#include "base/bundle.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/json.h"
#include "base/parallel_loops.h"
#include "base/shared_library.h"

namespace collage {
namespace {

using json::Get;
using json::GetAll;
using json::Object;
using tvm::ffi::String;

// TVM's other libraries look up the symbols of libtvm_runtime in the whole process.
bool IsGlobal(const std::string& name) { return name.rfind("libtvm_runtime", 0) == 0; }

Object Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) TVM_FFI_THROW(RuntimeError) << path << " is missing: this folder is not a bundle";
  std::ostringstream text;
  text << file.rdbuf();
  return json::As<Object>(tvm::ffi::json::Parse(text.str()), path);
}

// Environment variables that are set while libraries are loaded, unless they are set already.
class Environment {
 public:
  explicit Environment(const Object& values) {
    for (const auto& [key, value] : values) {
      const std::string name = json::As<String>(key, "the name of a variable");
      if (std::getenv(name.c_str()) != nullptr) continue;
      setenv(name.c_str(), std::string(json::As<String>(value, "a variable")).c_str(), 1);
      set_.push_back(name);
    }
  }
  ~Environment() {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> set_;
};

// Whether the process has mapped a library with this file name, which the caller or another bundle may have
// loaded. A second copy would register everything twice. Its version is checked when the program is opened.
bool IsMapped(const std::string& file) {
  const std::vector<std::string> paths = MappedLibraries();
  return std::any_of(paths.begin(), paths.end(),
                     [&](const std::string& path) { return FileNameOf(path) == file; });
}

// Loads libraries that are in any order. A library that needs another one of the folder fails until that one
// is loaded, so those that fail are tried again. Throws when a whole round fails.
void LoadAll(const std::string& folder, std::vector<String> left) {
  for (std::string reason; !left.empty();) {
    std::vector<String> failed;
    for (const String& name : left) {
      const std::string file = name;
      if (IsMapped(file)) continue;
      if (dlopen((folder + "/" + file).c_str(), RTLD_NOW | (IsGlobal(file) ? RTLD_GLOBAL : RTLD_LOCAL)) ==
          nullptr) {
        reason = dlerror();
        failed.push_back(name);
      }
    }
    if (failed.size() == left.size()) TVM_FFI_THROW(RuntimeError) << reason;
    left = std::move(failed);
  }
}

// Loads a library of the bundle in place of each one that the system lacks. `stand_ins` has the file in the
// bundle by the name of the library that may be missing.
void LoadStandIns(const std::string& folder, const Object& stand_ins) {
  for (const auto& [name, file] : stand_ins) {
    const std::string missing = json::As<String>(name, "the name of a library");
    if (dlopen(missing.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) continue;
    LoadAll(folder, {json::As<String>(file, "the file of a library")});
  }
}

}  // namespace

std::string OpenBundle(const std::string& folder) {
  const Object bundle = Read(folder + "/bundle.json");
  {
    const Environment environment(Get<Object>(bundle, "environment"));
    LoadStandIns(folder, Get<Object>(bundle, "stand_ins"));
    LoadAll(folder, GetAll<String>(bundle, "libraries"));
  }
  ClaimParallelLoops();  // TVM's runtime has taken them for its own pool
  return folder + "/" + std::string(Get<String>(bundle, "program"));
}

}  // namespace collage
