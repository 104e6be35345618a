#include "base/cache_state.h"

#include <algorithm>
#include <cstring>

#include "base/pool.h"
#include "base/workspace.h"

namespace collage {
namespace {

constexpr int64_t kCacheLine = 64;
// The most bytes of scratch of earlier kernels that the second-level caches may still hold.
constexpr size_t kCachedScratch = 2 << 20;

// Calls touch(line) for every cache line of a range, on the pool.
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

// Moves a cache line into the cache of this core in modified state, as its producer's store would.
void Rewrite(std::byte* line) {
  volatile std::byte* word = line;
  *word = *word;
}

int64_t NumBytes(const tvm::ffi::Tensor& tensor) { return tensor.numel() * ((tensor.dtype().bits + 7) / 8); }

}  // namespace

CacheState::CacheState(int64_t evict_bytes) : other_(static_cast<size_t>(evict_bytes)) {
  // The operating system maps all pages that were never written to one page of zeros, so reading them would
  // evict nothing.
  std::memset(other_.data(), 1, other_.nbytes());
}

void CacheState::Evict() { ForEachLine(other_.data(), static_cast<int64_t>(other_.nbytes()), Read); }

void CacheState::WriteFromAllCores(const tvm::ffi::Array<tvm::ffi::Tensor>& tensors) {
  const Workspace::Range scratch = Workspace::Next();
  ForEachLine(scratch.data, static_cast<int64_t>(std::min(scratch.nbytes, kCachedScratch)), Rewrite);
  for (const tvm::ffi::Tensor& tensor : tensors) {
    ForEachLine(static_cast<std::byte*>(tensor.data_ptr()), NumBytes(tensor), Rewrite);
  }
}

}  // namespace collage
