#include "base/neighbours.h"

#include <algorithm>
#include <cstring>

#include "base/pool.h"
#include "base/workspace.h"

namespace collage {
namespace {

constexpr int64_t kCacheLine = 64;
// Scratch of earlier kernels that is still near: some second-level caches.
constexpr size_t kNearScratch = 2 << 20;

// Touches every cache line of a range on the pool, with `touch` for each line.
template <typename Touch>
void ForEachLine(std::byte* data, int64_t nbytes, const Touch& touch) {
  if (nbytes == 0) return;
  const int threads = NumThreads();
  const int64_t share = (nbytes / kCacheLine + threads - 1) / threads * kCacheLine;
  ParallelFor(threads, threads, [&](int64_t thread) {
    const int64_t end = std::min(nbytes, (thread + 1) * share);
    for (int64_t i = thread * share; i < end; i += kCacheLine) touch(data + i);
  });
}

void Read(const std::byte* line) {
  const volatile std::byte* word = line;
  static_cast<void>(*word);
}

// Makes a cache line the property of the core that runs this, as a store of its producer would.
void Own(std::byte* line) {
  volatile std::byte* word = line;
  *word = *word;
}

int64_t NumBytes(const tvm::ffi::Tensor& tensor) {
  return tensor.numel() * ((tensor.dtype().bits + 7) / 8);
}

}  // namespace

Neighbours::Neighbours(int64_t evict_bytes) : other_(static_cast<size_t>(evict_bytes)) {
  // Pages that nobody has written are all one page of zeros: reading them would evict nothing.
  std::memset(other_.data(), 1, other_.nbytes());
}

void Neighbours::Evict() { ForEachLine(other_.data(), static_cast<int64_t>(other_.nbytes()), Read); }

void Neighbours::Write(const tvm::ffi::Array<tvm::ffi::Tensor>& tensors) {
  const Workspace::Range scratch = Workspace::Next();
  ForEachLine(scratch.data, static_cast<int64_t>(std::min(scratch.nbytes, kNearScratch)), Own);
  for (const tvm::ffi::Tensor& tensor : tensors) {
    ForEachLine(static_cast<std::byte*>(tensor.data_ptr()), NumBytes(tensor), Own);
  }
}

}  // namespace collage
