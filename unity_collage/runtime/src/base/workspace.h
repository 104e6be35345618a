// Memory for temporaries and scratch during one call.
//
// All functions of the process share it. So the memory that a kernel has just used is still in the caches for
// the next kernel, and a program needs only as much as its largest kernel, or up to half more.
#pragma once

#include "base/aligned_buffer.h"

namespace collage {

class Workspace {
 public:
  // At least `nbytes` bytes, uninitialised. Allocates only if the last used free buffer is smaller; the new
  // one is larger by at least half of it, up to 64 MiB.
  explicit Workspace(size_t nbytes);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  std::byte* data() const { return buffer_.data(); }

  struct Range {
    std::byte* data;
    size_t nbytes;
  };
  // The memory that the next call will get; empty if none is free. Call it only while no function runs.
  static Range Next();

 private:
  AlignedBuffer buffer_;
};

}  // namespace collage
