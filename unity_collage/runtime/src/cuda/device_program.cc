#include "cuda/device_program.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "cuda/device_memory.h"

namespace collage::cuda {
namespace {

constexpr size_t kDeviceAlignment = 256;

size_t Aligned(size_t nbytes) { return (nbytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment; }

// What a program keeps on the device.
struct Loaded {
  std::vector<DeviceBuffer> constants;
  std::vector<std::unique_ptr<Kernel>> kernels;
  size_t scratch_nbytes = 0;
  // The addresses of constants by buffer; others are set in each call.
  std::vector<std::byte*> addresses;
};

class DeviceProgram final : public Executable {
 public:
  DeviceProgram(const Program& program, const std::byte* constants, MakeKernel make)
      : program_(program), constants_(constants), make_(make), temporaries_(PlaceTemporaries(program)) {
    // Libraries expect operands that are aligned like the device's own memory.
    int64_t end = 0;
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      if (program.buffers[i].place != Place::kTemporary) continue;
      temporaries_[i] = end;
      end += static_cast<int64_t>(Aligned(static_cast<size_t>(program.buffers[i].nbytes)));
    }
    temporaries_.back() = end;
  }

  void Run(std::byte* const* arguments) final {
    const Loaded& loaded = OnDevice();
    const Stream stream = CurrentStream();
    const size_t temporary = static_cast<size_t>(temporaries_.back());
    std::byte* const scratch = Scratch(stream, temporary + loaded.scratch_nbytes);
    std::vector<std::byte*> buffers = loaded.addresses;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      if (program_.buffers[i].place == Place::kTemporary) buffers[i] = scratch + temporaries_[i];
    }
    for (size_t i = 0; i < program_.arguments.size(); ++i) buffers[program_.arguments[i]] = arguments[i];
    for (size_t i = 0; i < loaded.kernels.size(); ++i) {
      loaded.kernels[i]->Launch(buffers.data(), scratch + temporary, stream);
    }
  }

  // Loads the program, as the first run does.
  std::string Implementations() final {
    const Loaded& loaded = OnDevice();
    std::string lines;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      lines += "  " + StepName(program_, i) + ": " + loaded.kernels[i]->Implementation() + "\n";
    }
    return lines;
  }

 private:
  const Loaded& OnDevice() {
    std::call_once(once_, [this] { loaded_ = Load(); });
    return *loaded_;
  }

  std::unique_ptr<Loaded> Load() const {
    auto loaded = std::make_unique<Loaded>();
    const Stream stream = CurrentStream();
    loaded->addresses.resize(program_.buffers.size(), nullptr);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.place != Place::kConstant) continue;
      DeviceBuffer& data = loaded->constants.emplace_back(static_cast<size_t>(buffer.nbytes));
      loaded->addresses[i] = data.data();
      Check(Runtime().memcpy_async(data.data(), constants_ + buffer.where, data.nbytes(), kCopyOfAnyKind, stream),
            "the copy of constants");
    }
    Check(Runtime().stream_synchronize(stream), "the copy of constants");
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      loaded->kernels.push_back(
          Within(program_.name + ", " + StepName(program_, i), [&] { return make_(program_, i); }));
      loaded->scratch_nbytes = std::max(loaded->scratch_nbytes, loaded->kernels.back()->scratch_nbytes());
    }
    return loaded;
  }

  const Program& program_;
  const std::byte* constants_;
  const MakeKernel make_;
  std::vector<int64_t> temporaries_;
  std::once_flag once_;
  std::unique_ptr<const Loaded> loaded_;
};

}  // namespace

std::unique_ptr<Executable> ForDevice(const Program& program, const std::byte* constants, MakeKernel make) {
  return std::make_unique<DeviceProgram>(program, constants, make);
}

}  // namespace collage::cuda
