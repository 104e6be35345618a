// The OpenBLAS backend: kind "collage.openblas".
#include <cblas.h>
#include <tvm/ffi/reflection/registry.h>

#include "base/aligned_buffer.h"
#include "base/context_pool.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/pool.h"
#include "openblas/gemm.h"

namespace collage::openblas {
namespace {

// Temporaries of one running call, and where every buffer is in it.
struct Context {
  AlignedBuffer arena;
  std::vector<std::byte*> buffers;
};

Gemm CompileStep(const Step& step) {
  if (step.primitive != "gemm")
    TVM_FFI_THROW(ValueError) << "OpenBLAS has no primitive '" << step.primitive << "'";
  if (!step.post_ops.empty()) TVM_FFI_THROW(ValueError) << "OpenBLAS has no post-ops";
  return Gemm(step, NumThreads());
}

class OpenBlasProgram final : public Executable {
 public:
  OpenBlasProgram(const Program& program, const std::byte* constants)
      : program_(program), constants_(constants) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      steps_.push_back(
          Within(program.name + ", " + StepName(program, i), [&] { return CompileStep(program.steps[i]); }));
    }
  }

  void Run(std::byte* const* arguments) final {
    const auto context = contexts_.Take([this] { return MakeContext(); });
    for (size_t i = 0; i < program_.arguments.size(); ++i) {
      context->buffers[program_.arguments[i]] = arguments[i];
    }
    for (const Gemm& step : steps_) step.Run([&](int buffer) { return context->buffers[buffer]; });
  }

  std::string Implementations() const final {
    std::string lines;
    for (size_t i = 0; i < steps_.size(); ++i) {
      lines += "  " + StepName(program_, i) + ": " + (steps_[i].IsVectorProduct() ? "sgemv" : "sgemm") +
               " x " + std::to_string(steps_[i].NumTasks()) + "\n";
    }
    return lines;
  }

 private:
  std::unique_ptr<Context> MakeContext() const {
    const std::vector<int64_t> temporaries = PlaceTemporaries(program_);
    auto context = std::make_unique<Context>(Context{AlignedBuffer(temporaries.back()), {}});
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      // Only operands are constants, and an operand is only read.
      context->buffers.push_back(buffer.place == Place::kConstant
                                     ? const_cast<std::byte*>(constants_) + buffer.where
                                     : context->arena.data() + temporaries[i]);
    }
    return context;
  }

  const Program& program_;
  const std::byte* constants_;
  std::vector<Gemm> steps_;
  ContextPool<Context> contexts_;
};

std::unique_ptr<Executable> Compile(const Program& program, const std::byte* constants) {
  return std::make_unique<OpenBlasProgram>(program, constants);
}

// What decides how fast the library is, for the key of a measured price.
tvm::ffi::String DescribeLibrary() {
  return std::string(scipy_openblas_get_config()) + ", kernels of " + scipy_openblas_get_corename();
}

TVM_FFI_STATIC_INIT_BLOCK() {
  // Work is shared by the one pool, each piece on one thread of OpenBLAS.
  scipy_openblas_set_num_threads(1);
  static const Backend backend{"collage.openblas", Compile};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef().def("collage.openblas.describe", DescribeLibrary);
}

}  // namespace
}  // namespace collage::openblas
