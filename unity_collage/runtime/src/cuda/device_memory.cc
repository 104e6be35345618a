#include "cuda/device_memory.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace collage::cuda {
namespace {

// Allows this thread to allocate while it captures a stream.
class AllocatingWhileCapturing {
 public:
  AllocatingWhileCapturing() { Check(Runtime().thread_exchange_capture_mode(&mode_), "the capture mode"); }
  ~AllocatingWhileCapturing() { Runtime().thread_exchange_capture_mode(&mode_); }

 private:
  int mode_ = kCaptureRelaxed;
};

// A stream, or the capture of a stream: CUDA does not use the number of a capture again.
using User = std::pair<Stream, unsigned long long>;

User UserOf(Stream stream) {
  int status = 0;
  unsigned long long id = 0;
  if (stream != nullptr) {  // the default stream cannot be captured
    Check(Runtime().stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr, nullptr),
          "cudaStreamGetCaptureInfo");
  }
  return status == kCapturing ? User{nullptr, id + 1} : User{stream, 0};
}

struct Pool {
  std::mutex mutex;
  // The last buffer of a user is its largest. The others stay, since kernels and graphs may still use them.
  std::map<User, std::vector<DeviceBuffer>> buffers;
};

Pool& ThePool() {
  static Pool* const pool = new Pool;  // never destroyed: the driver may have ended before the destructors run
  return *pool;
}

}  // namespace

DeviceBuffer::DeviceBuffer(size_t nbytes) : nbytes_(nbytes) {
  if (nbytes == 0) return;
  const AllocatingWhileCapturing allocating;
  void* data = nullptr;
  Check(Runtime().malloc(&data, nbytes), "cudaMalloc");
  data_ = static_cast<std::byte*>(data);
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(nbytes_, other.nbytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) Runtime().free(data_);  // fails, harmlessly, where the driver has ended
}

std::byte* Scratch(Stream stream, size_t nbytes) {
  if (nbytes == 0) return nullptr;
  Pool& pool = ThePool();
  const User user = UserOf(stream);
  const std::lock_guard<std::mutex> lock(pool.mutex);
  std::vector<DeviceBuffer>& buffers = pool.buffers[user];
  if (buffers.empty() || buffers.back().nbytes() < nbytes) buffers.emplace_back(nbytes);
  return buffers.back().data();
}

}  // namespace collage::cuda
