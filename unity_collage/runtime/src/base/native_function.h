// One program as a callable: checks the arguments, then runs what the backend made of it.
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
  // Compiles at once, so that a program which the library refuses fails here, with the reason.
  NativeFunction(const Backend* backend, Program program, std::shared_ptr<const AlignedBuffer> constants);

  void Call(tvm::ffi::PackedArgs args);
  std::string Implementations();
  const std::string& name() const { return program_.name; }

 private:
  // Libraries split work by the number of threads when a primitive is made, so each number has its own.
  struct Ready {
    int threads;
    std::unique_ptr<Executable> executable;
  };

  Executable* ForCurrentThreads();
  const Ready* Prepare(int threads);

  const Backend* backend_;
  const Program program_;
  const std::shared_ptr<const AlignedBuffer> constants_;
  std::atomic<const Ready*> last_used_{nullptr};
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Ready>> ready_;
};

}  // namespace collage
