// Seconds of kernels on the device, between two events of its stream.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include <functional>
#include <vector>

#include "cuda/device_memory.h"
#include "cuda/runtime_api.h"

namespace collage::cuda {

// A stream of our own, on which TVM's kernels of this thread run as long as the object lives.
class OwnStream {
 public:
  OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream();

  Stream get() const { return stream_; }
  void Wait() const;

 private:
  int device_ = 0;
  Stream stream_ = nullptr;
  Stream before_ = nullptr;
};

// What is in the second-level cache when a kernel begins: other memory is written first, then its activations.
class DeviceCache {
 public:
  explicit DeviceCache(size_t evict_nbytes) : evicted_(evict_nbytes) {}

  // Enqueues the writes. `copies` are copies of the tensors, which are written back to them.
  void Prepare(const std::vector<DLTensor>& tensors, const std::vector<DeviceBuffer>& copies, Stream stream);

 private:
  DeviceBuffer evicted_;
  int turn_ = 0;
};

class DeviceClock {
 public:
  explicit DeviceClock(const OwnStream& stream) : stream_(stream) {}
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock();

  // Seconds between two events around what `enqueue` enqueues, for each of `runs`; `prepare` is enqueued
  // before each. A kernel that waits keeps the device busy while the run is enqueued, so that no launch is
  // late.
  std::vector<double> Spans(size_t runs, const std::function<void()>& prepare, const std::function<void()>& enqueue);

 private:
  Event EventAt(size_t index);

  const OwnStream& stream_;
  std::vector<Event> events_;
  double enqueuing_ = 20e-6;  // seconds that this thread needs to enqueue one run
};

}  // namespace collage::cuda
