#include "base/native_function.h"

#include <array>

#include "base/arguments.h"
#include "base/pool.h"

namespace collage {

NativeFunction::NativeFunction(const Backend* backend, Program program,
                               std::shared_ptr<const std::byte> constants)
    : backend_(backend), program_(std::move(program)), constants_(std::move(constants)) {
  if (program_.arguments.size() > kMaxArguments) {
    TVM_FFI_THROW(ValueError) << program_.name << ": a program takes at most " << kMaxArguments
                              << " arguments, not " << program_.arguments.size();
  }
  const ThreadLimit limit(program_.threads);
  CompileFor(NumThreads());
}

void NativeFunction::Call(tvm::ffi::PackedArgs args) {
  std::array<std::byte*, kMaxArguments> pointers;
  CheckArguments(program_, args, backend_->device, pointers.data());
  const ThreadLimit limit(program_.threads);
  ForCurrentThreads()->Run(pointers.data());
}

std::string NativeFunction::Implementations() {
  const ThreadLimit limit(program_.threads);
  return ForCurrentThreads()->Implementations();
}

Executable* NativeFunction::ForCurrentThreads() {
  const int threads = NumThreads();
  const Compiled* compiled = last_used_.load(std::memory_order_acquire);
  if (compiled->threads != threads) compiled = CompileFor(threads);
  return compiled->executable.get();
}

const NativeFunction::Compiled* NativeFunction::CompileFor(int threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Compiled* found = nullptr;
  for (const auto& compiled : compiled_) {
    if (compiled->threads == threads) found = compiled.get();
  }
  if (found == nullptr) {
    compiled_.push_back(
        std::make_unique<const Compiled>(Compiled{threads, backend_->compile(program_, constants_.get())}));
    found = compiled_.back().get();
  }
  last_used_.store(found, std::memory_order_release);
  return found;
}

}  // namespace collage
