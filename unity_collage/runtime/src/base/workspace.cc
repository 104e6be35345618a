#include "base/workspace.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace collage {
namespace {

// The most by which a buffer grows beyond what is needed.
constexpr size_t kMostSpare = size_t{64} << 20;

// Free buffers, the last used on top.
struct FreeList {
  std::mutex mutex;
  std::vector<AlignedBuffer> buffers;
  size_t made = 0;
};

FreeList& GlobalFreeList() {
  // Never destroyed, since functions may be called until the process ends.
  static FreeList* free = new FreeList;
  return *free;
}

}  // namespace

Workspace::Workspace(size_t nbytes) {
  if (nbytes == 0) return;
#ifdef __SANITIZE_ADDRESS__
  // A buffer of exactly this size, so that the sanitizer finds accesses behind its end.
  buffer_ = AlignedBuffer(nbytes);
  return;
#endif
  FreeList& free = GlobalFreeList();
  {
    std::lock_guard<std::mutex> lock(free.mutex);
    if (!free.buffers.empty()) {
      buffer_ = std::move(free.buffers.back());
      free.buffers.pop_back();
    } else {
      // Reserves room for every buffer, so that returning one does not allocate.
      free.buffers.reserve(++free.made);
    }
  }
  const size_t before = buffer_.nbytes();
  if (before >= nbytes) return;
  // Sizes that grow slowly from call to call do not allocate in each call.
  nbytes = std::max(nbytes, before + std::min(before / 2, kMostSpare));
  buffer_ = AlignedBuffer();
  buffer_ = AlignedBuffer(nbytes);
  PreferLargePages(buffer_);
}

Workspace::~Workspace() {
#ifndef __SANITIZE_ADDRESS__
  if (buffer_.data() == nullptr) return;
  FreeList& free = GlobalFreeList();
  std::lock_guard<std::mutex> lock(free.mutex);
  free.buffers.push_back(std::move(buffer_));
#endif
}

Workspace::Range Workspace::Next() {
  FreeList& free = GlobalFreeList();
  std::lock_guard<std::mutex> lock(free.mutex);
  if (free.buffers.empty()) return {nullptr, 0};
  return {free.buffers.back().data(), free.buffers.back().nbytes()};
}

}  // namespace collage
