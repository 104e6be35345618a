#include "base/native_function.h"

#include <algorithm>
#include <array>

#include "base/arguments.h"
#include "base/pool.h"

namespace collage {
namespace {

// The most sizes that a function stays compiled for; those that were used longest ago are dropped. Libraries
// cache the machine code of more primitives themselves.
constexpr size_t kMostSizes = 256;

int ThreadsOf(const Program& program) {
  const ThreadLimit limit(program.threads);
  return NumThreads();
}

}  // namespace

NativeFunction::NativeFunction(const Backend* backend, ProgramTemplate program,
                               std::shared_ptr<const std::byte> constants)
    : backend_(backend), template_(std::move(program)), constants_(std::move(constants)) {
  if (!template_.has_free_sizes()) For({});
}

void NativeFunction::Call(tvm::ffi::PackedArgs args) {
  std::array<std::byte*, kMaxArguments> pointers;
  std::shared_ptr<const Compiled> held;
  const Compiled* compiled = last_used_.load(std::memory_order_acquire);
  if (compiled == nullptr || compiled->threads != ThreadsOf(compiled->program)) {
    held = For(template_.SizesOf(args));
    compiled = held.get();
  }
  CheckArguments(compiled->program, args, backend_->device, pointers.data());
  if (compiled->executable == nullptr) return;  // an argument is empty, and so are all results
  const ThreadLimit limit(compiled->program.threads);
  compiled->executable->Run(pointers.data());
}

std::string NativeFunction::Implementations() {
  std::list<std::shared_ptr<const Compiled>> compiled;
  if (!template_.has_free_sizes()) {
    compiled.push_back(For({}));
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    compiled = compiled_;
  }
  std::string lines;
  for (const auto& each : compiled) {
    if (each->executable == nullptr) continue;
    if (!each->sizes.empty()) lines += "  for sizes";
    for (const int64_t size : each->sizes) lines += " " + std::to_string(size);
    if (!each->sizes.empty()) lines += "\n";
    const ThreadLimit limit(each->program.threads);
    lines += each->executable->Implementations();
  }
  return lines;
}

std::optional<NativeFunction::Memory> NativeFunction::HeldMemory() {
  if (template_.has_free_sizes()) return std::nullopt;
  const std::shared_ptr<const Compiled> compiled = For({});
  return Memory{compiled->packed,
                compiled->executable == nullptr ? 0 : compiled->executable->WorkspaceBytes()};
}

std::shared_ptr<const NativeFunction::Compiled> NativeFunction::For(const Sizes& sizes) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = compiled_.begin(); at != compiled_.end(); ++at) {
    if ((*at)->sizes != sizes || (*at)->threads != ThreadsOf((*at)->program)) continue;
    compiled_.splice(compiled_.begin(), compiled_, at);
    if (!template_.has_free_sizes()) last_used_.store(at->get(), std::memory_order_release);
    return *at;
  }
  compiled_.push_front(Compile(sizes));
  if (!template_.has_free_sizes()) {
    last_used_.store(compiled_.front().get(), std::memory_order_release);
  } else if (compiled_.size() > kMostSizes) {
    compiled_.pop_back();
  }
  return compiled_.front();
}

std::shared_ptr<const NativeFunction::Compiled> NativeFunction::Compile(const Sizes& sizes) const {
  // What the backend compiles refers to this program, so the program is made where it stays.
  auto compiled = std::make_shared<Compiled>(Compiled{0, sizes, template_.At(sizes), nullptr});
  if (compiled->program.arguments.size() > kMaxArguments) {
    TVM_FFI_THROW(ValueError) << name() << ": a program takes at most " << kMaxArguments << " arguments, not "
                              << compiled->program.arguments.size();
  }
  const ThreadLimit limit(compiled->program.threads);
  compiled->threads = NumThreads();
  if (!compiled->program.is_empty) {
    const ptrdiff_t before = MadeByThisThread();
    compiled->executable = backend_->compile(compiled->program, constants_.get());
    compiled->packed = static_cast<size_t>(std::max<ptrdiff_t>(MadeByThisThread() - before, 0));
  }
  return compiled;
}

}  // namespace collage
