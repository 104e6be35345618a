#include "base/workspace.h"

#include <mutex>
#include <utility>
#include <vector>

namespace collage {
namespace {

// What is free, the last used on top.
struct Free {
  std::mutex mutex;
  std::vector<AlignedBuffer> buffers;
  size_t made = 0;
};

Free& TheFree() {
  // Never destroyed: functions may be called until the process ends.
  static Free* free = new Free;
  return *free;
}

}  // namespace

Workspace::Workspace(size_t nbytes) {
  if (nbytes == 0) return;
#ifdef __SANITIZE_ADDRESS__
  // Exactly as large, so that what is written behind its end is found.
  buffer_ = AlignedBuffer(nbytes);
  return;
#endif
  Free& free = TheFree();
  {
    std::lock_guard<std::mutex> lock(free.mutex);
    if (!free.buffers.empty()) {
      buffer_ = std::move(free.buffers.back());
      free.buffers.pop_back();
    } else {
      // Room for every buffer there is: to give one back must not allocate.
      free.buffers.reserve(++free.made);
    }
  }
  if (buffer_.nbytes() >= nbytes) return;
  buffer_ = AlignedBuffer();
  buffer_ = AlignedBuffer(nbytes);
  PreferLargePages(buffer_);
}

Workspace::~Workspace() {
#ifndef __SANITIZE_ADDRESS__
  if (buffer_.data() == nullptr) return;
  Free& free = TheFree();
  std::lock_guard<std::mutex> lock(free.mutex);
  free.buffers.push_back(std::move(buffer_));
#endif
}

Workspace::Range Workspace::Next() {
  Free& free = TheFree();
  std::lock_guard<std::mutex> lock(free.mutex);
  if (free.buffers.empty()) return {nullptr, 0};
  return {free.buffers.back().data(), free.buffers.back().nbytes()};
}

}  // namespace collage
