// Tensors between inaccessible guard pages: a kernel that leaves its tensor causes a fault.
#include <signal.h>
#include <sys/mman.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/reflection/registry.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "base/aligned_buffer.h"

namespace collage {
namespace {

using tvm::ffi::Tensor;

constexpr size_t kRegions = 1024;
constexpr std::byte kRedZone{0xA5};
// Floats of these bytes are NaN, so an element that a kernel does not write is noticed.
constexpr int kPoison = 0xFF;

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Every access within this distance of a tensor is detected. Guard pages take address space, but no memory.
size_t GuardBytes() { return 16 * PageBytes(); }

// Guard pages, then whole pages with the data at one end, then guard pages.
struct Region {
  std::atomic<std::byte*> begin{nullptr};
  size_t length = 0;
  std::byte* data = nullptr;
  size_t nbytes = 0;

  std::byte* pages() const { return begin + GuardBytes(); }
  size_t pages_length() const { return length - 2 * GuardBytes(); }
};

// The signal handler searches this array, so it neither grows nor moves.
std::array<Region, kRegions> regions;
std::mutex regions_mutex;

Region* RegionOf(const void* address) {
  const std::byte* wanted = static_cast<const std::byte*>(address);
  for (Region& region : regions) {
    const std::byte* begin = region.begin.load(std::memory_order_acquire);
    if (begin != nullptr && begin <= wanted && wanted < begin + region.length) return &region;
  }
  return nullptr;
}

Region* FreeRegion() {
  for (Region& region : regions) {
    if (region.begin.load(std::memory_order_relaxed) == nullptr) return &region;
  }
  TVM_FFI_THROW(RuntimeError) << "there are more than " << kRegions << " guarded tensors";
}

// The data begins behind the first guard pages, or ends before the last ones as nearly as alignment allows.
void Map(Region* region, size_t nbytes, bool at_end) {
  const size_t guard = GuardBytes(), room = (nbytes / PageBytes() + 1) * PageBytes();
  void* mapped = mmap(nullptr, room + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  std::byte* pages = static_cast<std::byte*>(mapped) + guard;
  if (mprotect(pages, room, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, room + 2 * guard);
    throw std::bad_alloc();
  }
  std::byte* data = at_end ? pages + (room - RoundUp(nbytes)) : pages;
  std::fill(pages, data, kRedZone);
  std::memset(data, kPoison, nbytes);
  std::fill(data + nbytes, pages + room, kRedZone);
  region->data = data;
  region->nbytes = nbytes;
  region->length = room + 2 * guard;
  region->begin.store(static_cast<std::byte*>(mapped), std::memory_order_release);
}

struct GuardedAlloc {
  void AllocData(DLTensor* tensor, bool at_end) {
    std::lock_guard<std::mutex> lock(regions_mutex);
    Region* region = FreeRegion();
    Map(region, tvm::ffi::GetDataSize(*tensor), at_end);
    tensor->data = region->data;
  }

  void FreeData(DLTensor* tensor) {
    std::lock_guard<std::mutex> lock(regions_mutex);
    Region* region = RegionOf(tensor->data);
    munmap(region->begin.exchange(nullptr), region->length);
  }
};

Tensor GuardedTensor(tvm::ffi::Shape shape, DLDataType dtype, bool at_end) {
  return Tensor::FromNDAlloc(GuardedAlloc(), shape, dtype, DLDevice{kDLCPU, 0}, at_end);
}

Region* Guarded(const Tensor& tensor) {
  Region* region = RegionOf(tensor.data_ptr());
  if (region == nullptr) TVM_FFI_THROW(ValueError) << "the tensor is not in guarded memory";
  return region;
}

// From now on a write to the tensor is a fault.
void ProtectTensor(Tensor tensor) {
  Region* region = Guarded(tensor);
  mprotect(region->pages(), region->pages_length(), PROT_READ);
}

// Whether the bytes between the tensor and the guard pages are unchanged.
bool IntactRedZone(Tensor tensor) {
  Region* region = Guarded(tensor);
  const std::byte *first = region->pages(), *last = first + region->pages_length();
  const auto intact = [](const std::byte* from, const std::byte* to) {
    return std::all_of(from, to, [](std::byte value) { return value == kRedZone; });
  };
  return intact(first, region->data) && intact(region->data + region->nbytes, last);
}

// What is written to `file` before the process ends.
struct FaultMessages {
  int file = -1;
  std::string wrote_outside, read_outside, wrote_input;
};

FaultMessages& Messages() {
  static FaultMessages* messages = new FaultMessages;  // never destroyed, since a signal may come at any time
  return *messages;
}

struct sigaction previous_action;

bool IsWrite(const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWriteAccess = 2;  // of the page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteAccess) != 0;
#else
  static_cast<void>(context);
  return true;
#endif
}

const std::string& MessageFor(const Region& region, const void* address, bool write) {
  const bool inside = address >= region.pages() && address < region.pages() + region.pages_length();
  if (inside) return Messages().wrote_input;
  return write ? Messages().wrote_outside : Messages().read_outside;
}

// A fault in guarded memory writes its message and ends the process. Other faults go to the previous handler.
void OnFault(int signal, siginfo_t* info, void* context) {
  const Region* region = RegionOf(info->si_addr);
  if (region == nullptr) {
    sigaction(signal, &previous_action, nullptr);
    return;
  }
  const std::string& text = MessageFor(*region, info->si_addr, IsWrite(context));
  const ssize_t written = write(Messages().file, text.data(), text.size());
  _exit(written < 0 ? 2 : 1);
}

// From now on a forbidden access to guarded memory writes one of the messages to `file` and ends the process.
void WatchGuards(int64_t file, tvm::ffi::String wrote_outside, tvm::ffi::String read_outside,
                 tvm::ffi::String wrote_input) {
  Messages() = FaultMessages{static_cast<int>(file), wrote_outside, read_outside, wrote_input};
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &previous_action);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.guarded_tensor", GuardedTensor)
      .def("collage.runtime.protect_tensor", ProtectTensor)
      .def("collage.runtime.intact_red_zone", IntactRedZone)
      .def("collage.runtime.watch_guards", WatchGuards);
}

}  // namespace
}  // namespace collage
