// Kernels of our own: kind "collage.kernels".
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <optional>

#include "base/buffer_table.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/pool.h"
#include "kernels/convolution.h"
#include "kernels/isa.h"

namespace collage::kernels {
namespace {

class KernelProgram final : public Executable {
 public:
  KernelProgram(const Program& program, const std::byte* constants) : program_(program) {
    size_t scratch = 0;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      steps_.push_back(Within(program.name + ", " + StepName(program, i),
                              [&] { return MakeStep(program, program.steps[i], constants, NumThreads()); }));
      scratch = std::max(scratch, steps_.back()->ScratchBytes());
    }
    buffers_.emplace(program, constants, scratch);
  }

  void Run(std::byte* const* arguments) final {
    buffers_->With(arguments, [this](std::byte* const* buffers, std::byte* scratch) {
      for (const auto& step : steps_) step->Run(buffers, scratch);
    });
  }

  size_t WorkspaceBytes() const final { return buffers_->WorkspaceBytes(); }

  std::string Implementations() final {
    std::string lines;
    for (size_t i = 0; i < steps_.size(); ++i)
      lines += "  " + StepName(program_, i) + ": " + steps_[i]->Description() + "\n";
    return lines;
  }

 private:
  const Program& program_;
  std::vector<std::unique_ptr<PreparedStep>> steps_;
  std::optional<BufferTable> buffers_;
};

std::unique_ptr<Executable> Compile(const Program& program, const std::byte* constants) {
  return std::make_unique<KernelProgram>(program, constants);
}

tvm::ffi::Array<tvm::ffi::String> Isas() {
  tvm::ffi::Array<tvm::ffi::String> names;
  for (const std::string& name : RunnableIsas()) names.push_back(name);
  return names;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  // Attention is compiled for each length of its sequences, and what is kept of a length is small.
  static const Backend backend{"collage.kernels", Compile, kDLCPU, 1024};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef()
      .def("collage.kernels.isas", Isas)
      // What decides how fast the kernels are, for the fingerprint of a measured cost.
      .def("collage.kernels.describe",
           [] { return tvm::ffi::String("kernels for " + RunnableIsas().front()); });
}

}  // namespace
}  // namespace collage::kernels
