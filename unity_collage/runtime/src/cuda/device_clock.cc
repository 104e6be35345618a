#include "cuda/device_clock.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <chrono>

#include "base/call.h"
#include "cuda/probe_kernels.h"

namespace collage::cuda {
namespace {

constexpr double kSlack = 1.5;
constexpr double kLeastWait = 10e-6, kLongestWait = 2e-3;  // seconds


}  // namespace

OwnStream::OwnStream() {
  Check(Runtime().get_device(&device_), "cudaGetDevice");
  Check(Runtime().stream_create(&stream_, kStreamNonBlocking), "cudaStreamCreate");
  TVMFFIEnvSetStream(kDLCUDA, device_, stream_, &before_);
}

OwnStream::~OwnStream() {
  TVMFFIEnvSetStream(kDLCUDA, device_, before_, nullptr);
  Runtime().stream_destroy(stream_);
}

void OwnStream::Wait() const { Check(Runtime().stream_synchronize(stream_), "waiting for the device"); }

void DeviceCache::Prepare(const std::vector<DLTensor>& tensors, const std::vector<DeviceBuffer>& copies,
                          Stream stream) {
  if (evicted_.nbytes() != 0) {
    Check(Runtime().memset_async(evicted_.data(), ++turn_ & 0xff, evicted_.nbytes(), stream), "cudaMemset");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::byte* const to = static_cast<std::byte*>(tensors[i].data) + tensors[i].byte_offset;
    Check(Runtime().memcpy_async(to, copies[i].data(), copies[i].nbytes(), kCopyOfAnyKind, stream), "cudaMemcpy");
  }
}

DeviceClock::~DeviceClock() {
  for (const Event event : events_) Runtime().event_destroy(event);
}

std::vector<double> DeviceClock::Spans(size_t runs, const std::function<void()>& prepare,
                                       const std::function<void()>& enqueue) {
  double longest = 0;
  for (size_t i = 0; i < runs; ++i) {
    const double wait = std::clamp(kSlack * enqueuing_, kLeastWait, kLongestWait);
    LaunchWait(static_cast<uint64_t>(wait * 1e9), stream_.get());
    const Clock::time_point begin = Clock::now();
    prepare();
    Check(Runtime().event_record(EventAt(2 * i), stream_.get()), "cudaEventRecord");
    enqueue();
    Check(Runtime().event_record(EventAt(2 * i + 1), stream_.get()), "cudaEventRecord");
    longest = std::max(longest, SecondsSince(begin));
  }
  enqueuing_ = std::max(enqueuing_ / 2, longest);
  stream_.Wait();
  std::vector<double> seconds;
  for (size_t i = 0; i < runs; ++i) {
    float milliseconds = 0;
    Check(Runtime().event_elapsed_time(&milliseconds, EventAt(2 * i), EventAt(2 * i + 1)), "cudaEventElapsedTime");
    seconds.push_back(milliseconds * 1e-3);
  }
  return seconds;
}

Event DeviceClock::EventAt(size_t index) {
  while (events_.size() <= index) {
    Event event = nullptr;
    Check(Runtime().event_create(&event), "cudaEventCreate");
    events_.push_back(event);
  }
  return events_[index];
}

}  // namespace collage::cuda
