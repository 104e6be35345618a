// A library that is not ours and is opened when it is first needed: neither building nor importing needs it.
#pragma once

#include <string>
#include <vector>

namespace collage {

class SharedLibrary {
 public:
  // Opens `soname`, which the process may have mapped already; throws a RuntimeError with the loader's
  // reason.
  explicit SharedLibrary(const std::string& soname);

  // The library that the process has mapped from a file with a name that begins with `prefix`; the version
  // follows in the name. If there is none, `prefix` itself is opened.
  static SharedLibrary Mapped(const std::string& prefix);

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

// The part of a path behind its last slash.
std::string FileNameOf(const std::string& path);

// The paths of the libraries that the process has mapped, the last mapped one first.
std::vector<std::string> MappedLibraries();

}  // namespace collage
