#include "base/native_function.h"

#include <array>

#include "base/arguments.h"
#include "base/pool.h"

namespace collage {

NativeFunction::NativeFunction(const Backend* backend, Program program,
                               std::shared_ptr<const AlignedBuffer> constants)
    : backend_(backend), program_(std::move(program)), constants_(std::move(constants)) {
  if (program_.arguments.size() > kMaxArguments) {
    TVM_FFI_THROW(ValueError) << program_.name << ": a program takes at most " << kMaxArguments
                              << " arguments, not " << program_.arguments.size();
  }
  const ThreadLimit limit(program_.threads);
  Prepare(NumThreads());
}

void NativeFunction::Call(tvm::ffi::PackedArgs args) {
  std::array<std::byte*, kMaxArguments> pointers;
  CheckArguments(program_, args, pointers.data());
  const ThreadLimit limit(program_.threads);
  ForCurrentThreads()->Run(pointers.data());
}

std::string NativeFunction::Implementations() {
  const ThreadLimit limit(program_.threads);
  return ForCurrentThreads()->Implementations();
}

Executable* NativeFunction::ForCurrentThreads() {
  const int threads = NumThreads();
  const Ready* ready = last_used_.load(std::memory_order_acquire);
  if (ready->threads != threads) ready = Prepare(threads);
  return ready->executable.get();
}

const NativeFunction::Ready* NativeFunction::Prepare(int threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Ready* found = nullptr;
  for (const auto& ready : ready_) {
    if (ready->threads == threads) found = ready.get();
  }
  if (found == nullptr) {
    ready_.push_back(
        std::make_unique<const Ready>(Ready{threads, backend_->compile(program_, constants_->data())}));
    found = ready_.back().get();
  }
  last_used_.store(found, std::memory_order_release);
  return found;
}

}  // namespace collage
