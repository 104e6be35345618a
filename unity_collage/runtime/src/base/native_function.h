// One program as a callable: checks the arguments, then runs what the backend has compiled.
#pragma once

#include <tvm/ffi/function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/executable.h"
#include "base/program.h"

namespace collage {

class NativeFunction {
 public:
  // Compiles at once, so that a program that the library refuses fails here, with the reason.
  NativeFunction(const Backend* backend, Program program, std::shared_ptr<const std::byte> constants);

  void Call(tvm::ffi::PackedArgs args);
  std::string Implementations();
  const std::string& name() const { return program_.name; }

 private:
  // The program for one number of threads: libraries divide the work when a primitive is made.
  struct Compiled {
    int threads;
    std::unique_ptr<Executable> executable;
  };

  Executable* ForCurrentThreads();
  const Compiled* CompileFor(int threads);

  const Backend* backend_;
  const Program program_;
  const std::shared_ptr<const std::byte> constants_;
  std::atomic<const Compiled*> last_used_{nullptr};
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Compiled>> compiled_;
};

}  // namespace collage
