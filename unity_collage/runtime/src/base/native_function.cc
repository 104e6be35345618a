#include "base/native_function.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/arguments.h"
#include "base/call.h"
#include "base/forks.h"
#include "base/pool.h"

namespace collage {
namespace {

// What this process has compiled for free sizes: how many programs, and in how many nanoseconds.
std::atomic<int64_t> compiled_programs{0}, compiled_nanoseconds{0};

class TimedCompile {
 public:
  ~TimedCompile() {
    compiled_programs += 1;
    compiled_nanoseconds += static_cast<int64_t>(SecondsSince(begin_) * 1e9);
  }

 private:
  const Clock::time_point begin_ = Clock::now();
};

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("collage.runtime.compiled_for_sizes", [] {
    return tvm::ffi::Array<double>({static_cast<double>(compiled_programs), 1e-9 * compiled_nanoseconds});
  });
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
  if (compiled == nullptr || compiled->threads != Threads()) {
    held = For(template_.SizesOf(args));
    compiled = held.get();
  }
  CheckArguments(compiled->program, args, backend_->device, pointers.data());
  if (compiled->executable == nullptr) return;  // an argument is empty, and so are all results
  // Its scratch memory is for so many threads. Another thread may have allowed more meanwhile.
  const ThreadLimit limit(compiled->threads);
  compiled->executable->Run(pointers.data());
}

std::string NativeFunction::Implementations() {
  std::vector<std::shared_ptr<const Compiled>> compiled;
  if (!template_.has_free_sizes()) {
    compiled.push_back(For({}));
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (entry->compiled != nullptr) compiled.push_back(entry->compiled);
    }
  }
  std::string lines;
  for (const auto& each : compiled) {
    if (each->executable == nullptr) continue;
    if (!each->sizes.empty()) lines += "  for sizes";
    for (const int64_t size : each->sizes) lines += " " + std::to_string(size);
    if (!each->sizes.empty()) lines += "\n";
    const ThreadLimit limit(template_.threads());
    lines += each->executable->Implementations();
  }
  return lines;
}

std::optional<NativeFunction::Memory> NativeFunction::HeldMemory() {
  if (template_.has_free_sizes()) return std::nullopt;
  const std::shared_ptr<const Compiled> compiled = For({});
  Memory memory{0, compiled->executable == nullptr ? 0 : compiled->executable->WorkspaceBytes()};
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (entry->compiled != nullptr) memory.packed += entry->compiled->packed;
  }
  return memory;
}

int NativeFunction::Threads() const {
  const ThreadLimit limit(template_.threads());
  return NumThreads();
}

std::shared_ptr<const NativeFunction::Compiled> NativeFunction::For(Sizes sizes) {
  const Key key{Threads(), std::move(sizes)};
  std::unique_lock<std::mutex> lock(mutex_);
  const std::shared_ptr<Entry> entry = EntryFor(key);
  if (entry->compiled == nullptr) {
    // Callers with other sizes do not wait for this one.
    lock.unlock();
    const WithoutForks without_forks;  // for this lock, and those of packed weights
    std::lock_guard<std::mutex> compiling(entry->compiling);
    if (entry->compiled == nullptr) {
      std::shared_ptr<const Compiled> compiled = Compile(key.second);
      if (compiled->threads != key.first) return compiled;  // the number of threads has just changed
      lock.lock();
      entry->compiled = std::move(compiled);
    }
  }
  if (!template_.has_free_sizes()) last_used_.store(entry->compiled.get(), std::memory_order_release);
  return entry->compiled;
}

std::shared_ptr<NativeFunction::Entry> NativeFunction::EntryFor(const Key& key) {
  std::shared_ptr<Entry>& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  entry->last_use = ++uses_;
  if (template_.has_free_sizes() && entries_.size() > backend_->most_sizes) {
    entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& one, const auto& other) {
      return one.second->last_use < other.second->last_use;
    }));
  }
  return entry;
}

std::shared_ptr<const NativeFunction::Compiled> NativeFunction::Compile(const Sizes& sizes) const {
  std::optional<TimedCompile> timed;
  if (template_.has_free_sizes()) timed.emplace();
  // What the backend compiles refers to this program, so the program is made where it stays.
  auto compiled = std::make_shared<Compiled>(Compiled{0, sizes, template_.At(sizes), nullptr});
  if (compiled->program.arguments.size() > kMaxArguments) {
    TVM_FFI_THROW(ValueError) << name() << ": a program takes at most " << kMaxArguments << " arguments, not "
                              << compiled->program.arguments.size();
  }
  const ThreadLimit limit(template_.threads());
  compiled->threads = NumThreads();
  if (!compiled->program.is_empty) {
    const ptrdiff_t before = MadeByThisThread();
    compiled->executable = backend_->compile(compiled->program, constants_.get());
    compiled->packed = static_cast<size_t>(std::max<ptrdiff_t>(MadeByThisThread() - before, 0));
  }
  return compiled;
}

}  // namespace collage
