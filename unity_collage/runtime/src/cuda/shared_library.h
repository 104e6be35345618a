// A vendor's library that is opened by name when it is first needed: neither building nor importing needs it.
#pragma once

#include <string>

namespace collage::cuda {

class SharedLibrary {
 public:
  // Opens `soname`, which the process may have mapped already; throws a RuntimeError with the loader's reason.
  explicit SharedLibrary(const std::string& soname);

  // Sets `function` to the function `name`; throws a RuntimeError where the library has none.
  template <typename Function>
  void Find(const std::string& name, Function** function) const {
    *function = reinterpret_cast<Function*>(Address(name));
  }

 private:
  void* Address(const std::string& name) const;

  std::string soname_;
  void* handle_;  // stays open: handles of vendors live as long as the process
};

}  // namespace collage::cuda
