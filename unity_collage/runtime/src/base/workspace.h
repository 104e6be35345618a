// Memory for temporaries and scratch, lent for the time of one call.
//
// All functions of the process share it: a kernel finds in the caches what the one before it has left there, and a
// program needs as much as its largest kernel.
#pragma once

#include "base/aligned_buffer.h"

namespace collage {

class Workspace {
 public:
  // At least so many bytes, of any content. Allocates only if nothing as large is free.
  explicit Workspace(size_t nbytes);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  std::byte* data() const { return buffer_.data(); }

  struct Range {
    std::byte* data;
    size_t nbytes;
  };
  // What the next call will be lent, empty if nothing is free. Only while no function runs.
  static Range Next();

 private:
  AlignedBuffer buffer_;
};

}  // namespace collage
