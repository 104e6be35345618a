// Memory on the device: buffers, and scratch memory that the kernels of one stream share.
#pragma once

#include <cstddef>

#include "cuda/runtime_api.h"

namespace collage::cuda {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t nbytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = static_cast<DeviceBuffer&&>(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::byte* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t nbytes_ = 0;
};

// At least `nbytes` bytes of scratch memory for kernels on `stream`, aligned to 256 bytes. Kernels of one
// stream run one after the other, so they share it. While the stream is captured, the graph gets memory of
// its own: it may be launched on any stream later. Memory is only added, when a call needs more than all
// calls before: repeated calls need no more than one.
std::byte* Scratch(Stream stream, size_t nbytes);

}  // namespace collage::cuda
