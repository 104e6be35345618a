// One program as a callable: checks the arguments, then runs what the backend has compiled.
#pragma once

#include <tvm/ffi/function.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/executable.h"
#include "base/program.h"
#include "base/program_template.h"

namespace collage {

class NativeFunction {
 public:
  // Without free sizes it compiles at once, so that a program that the library refuses fails here, with the
  // reason.
  NativeFunction(const Backend* backend, ProgramTemplate program, std::shared_ptr<const std::byte> constants);

  void Call(tvm::ffi::PackedArgs args);
  std::string Implementations();

  // What the program holds in addition to its constants.
  struct Memory {
    // Packed copies of constants, as long as the function exists. Copies that another function has made are
    // not counted.
    size_t packed;
    // Of the workspace, which all functions share, during a call.
    size_t workspace;
  };
  // Nothing for a program with free sizes: it is compiled when it is called.
  std::optional<Memory> HeldMemory();
  const std::string& name() const { return template_.name(); }

 private:
  // The program for one number of threads and one set of sizes: libraries divide the work when a primitive is
  // made.
  struct Compiled {
    int threads;
    Sizes sizes;
    Program program;
    std::unique_ptr<Executable> executable;
    size_t packed = 0;
  };

  // The number of threads and the sizes; no sizes without free sizes.
  using Key = std::pair<int, Sizes>;

  struct Entry {
    // Held while the program is compiled, so that several callers compile it once.
    std::mutex compiling;
    // Null until it is compiled. Written once with both mutexes held, this one and the function's.
    std::shared_ptr<const Compiled> compiled;
    uint64_t last_use = 0;
  };

  // The number of threads for which the program is compiled now.
  int Threads() const;
  // Compiled for the current number of threads; `sizes` is empty without free sizes.
  std::shared_ptr<const Compiled> For(Sizes sizes);
  std::shared_ptr<const Compiled> Compile(const Sizes& sizes) const;
  // The entry, which is added if there is none. The caller holds the mutex.
  std::shared_ptr<Entry> EntryFor(const Key& key);

  const Backend* backend_;
  const ProgramTemplate template_;
  const std::shared_ptr<const std::byte> constants_;
  // What a program without free sizes has used last. It is found without a lock, since it is never removed.
  std::atomic<const Compiled*> last_used_{nullptr};
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
  uint64_t uses_ = 0;
};

}  // namespace collage
