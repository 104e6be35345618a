// A program with kernels on the device as its steps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/executable.h"
#include "base/program.h"
#include "cuda/runtime_api.h"

namespace collage::cuda {

// One step, made by a library.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // How many bytes of scratch memory a run needs.
  virtual size_t scratch_nbytes() const { return 0; }

  // Launches the kernel on `stream`; buffers[i] is the address of buffer i of the program on the device. It may be
  // captured in a graph: it neither allocates nor waits.
  virtual void Launch(std::byte* const* buffers, std::byte* scratch, Stream stream) = 0;

  // Which implementation the library has chosen.
  virtual std::string Implementation() const = 0;
};

// Makes the kernel of step `step`; throws an error with the library's reason.
using MakeKernel = std::unique_ptr<Kernel> (*)(const Program& program, size_t step);

// The program with kernels that `make` makes. Constants go to the device, and kernels are made, with the first call:
// a machine without a device can generate code.
std::unique_ptr<Executable> ForDevice(const Program& program, const std::byte* constants, MakeKernel make);

}  // namespace collage::cuda
