// Kernels of our own: kind "collage.kernels".
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>

#include "base/context_pool.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/pool.h"
#include "kernels/convolution.h"
#include "kernels/isa.h"

namespace collage::kernels {
namespace {

// Temporaries of one running call and behind them the scratch of its steps, and where every buffer is in it.
struct Context {
  AlignedBuffer arena;
  std::vector<std::byte*> buffers;
  std::byte* scratch;
};

class KernelProgram final : public Executable {
 public:
  KernelProgram(const Program& program, const std::byte* constants)
      : program_(program), constants_(constants) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      steps_.push_back(Within(program.name + ", " + StepName(program, i), [&] {
        return MakeStep(program, program.steps[i], constants, NumThreads());
      }));
    }
  }

  void Run(std::byte* const* arguments) final {
    const auto context = contexts_.Take([this] { return MakeContext(); });
    for (size_t i = 0; i < program_.arguments.size(); ++i) {
      context->buffers[program_.arguments[i]] = arguments[i];
    }
    for (const auto& step : steps_) step->Run(context->buffers.data(), context->scratch);
  }

  std::string Implementations() const final {
    std::string lines;
    for (size_t i = 0; i < steps_.size(); ++i)
      lines += "  " + StepName(program_, i) + ": " + steps_[i]->Description() + "\n";
    return lines;
  }

 private:
  std::unique_ptr<Context> MakeContext() const {
    size_t scratch = 0;
    for (const auto& step : steps_) scratch = std::max(scratch, step->ScratchBytes());
    const std::vector<int64_t> temporaries = PlaceTemporaries(program_);
    auto context =
        std::make_unique<Context>(Context{AlignedBuffer(temporaries.back() + scratch), {}, nullptr});
    PreferLargePages(context->arena);
    context->scratch = context->arena.data() + temporaries.back();
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      // Only sources are constants, and a source is only read.
      context->buffers.push_back(buffer.place == Place::kConstant
                                     ? const_cast<std::byte*>(constants_) + buffer.where
                                     : context->arena.data() + temporaries[i]);
    }
    return context;
  }

  const Program& program_;
  const std::byte* constants_;
  std::vector<std::unique_ptr<PreparedStep>> steps_;
  ContextPool<Context> contexts_;
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
  static const Backend backend{"collage.kernels", Compile};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef()
      .def("collage.kernels.isas", Isas)
      // What decides how fast the kernels are, for the key of a measured price.
      .def("collage.kernels.describe",
           [] { return tvm::ffi::String("kernels for " + RunnableIsas().front()); });
}

}  // namespace
}  // namespace collage::kernels
