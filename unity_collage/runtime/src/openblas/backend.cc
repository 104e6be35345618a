// The OpenBLAS backend: kind "collage.openblas".
#include <cblas.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include "base/buffer_table.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/pool.h"
#include "openblas/gemm.h"

namespace collage::openblas {
namespace {

Gemm CompileStep(const Step& step) {
  if (step.primitive != "gemm")
    TVM_FFI_THROW(ValueError) << "OpenBLAS has no primitive '" << step.primitive << "'";
  if (!step.post_ops.empty()) TVM_FFI_THROW(ValueError) << "OpenBLAS has no post-ops";
  return Gemm(step, NumThreads());
}

class OpenBlasProgram final : public Executable {
 public:
  OpenBlasProgram(const Program& program, const std::byte* constants)
      : program_(program), buffers_(program, constants) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      steps_.push_back(
          Within(program.name + ", " + StepName(program, i), [&] { return CompileStep(program.steps[i]); }));
    }
  }

  void Run(std::byte* const* arguments) final {
    buffers_.With(arguments, [this](std::byte* const* buffers, std::byte* /*scratch*/) {
      for (const Gemm& step : steps_) step.Run([&](int buffer) { return buffers[buffer]; });
    });
  }

  size_t WorkspaceBytes() const final { return buffers_.WorkspaceBytes(); }

  std::string Implementations() final {
    std::string lines;
    for (size_t i = 0; i < steps_.size(); ++i) {
      lines += "  " + StepName(program_, i) + ": " + (steps_[i].IsVectorProduct() ? "sgemv" : "sgemm") +
               " x " + std::to_string(steps_[i].NumTasks()) + "\n";
    }
    return lines;
  }

 private:
  const Program& program_;
  std::vector<Gemm> steps_;
  BufferTable buffers_;
};

std::unique_ptr<Executable> Compile(const Program& program, const std::byte* constants) {
  return std::make_unique<OpenBlasProgram>(program, constants);
}

const float* Data(const tvm::ffi::TensorView& matrix) {
  return static_cast<const float*>(matrix.data_ptr()) + matrix.byte_offset() / sizeof(float);
}

// c = a @ b for kernels of TVM that call it between their loops: contiguous float32, b and c with two dims,
// and as many rows in a as its leading dims have together.
void MultiplyInside(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t inner = b.size(0), cols = b.size(1), rows = inner == 0 ? 0 : a.numel() / inner;
  if (rows == 0 || cols == 0 || a.size(-1) != inner || c.numel() != rows * cols)
    TVM_FFI_THROW(ValueError) << "collage.openblas.matmul: the sizes do not fit";
  Multiply(Data(a), Data(b), const_cast<float*>(Data(c)), rows, inner, cols);
}

// What decides how fast the library is, for the fingerprint of a measured cost.
tvm::ffi::String DescribeLibrary() {
  return std::string(scipy_openblas_get_config()) + ", kernels of " + scipy_openblas_get_corename();
}

TVM_FFI_STATIC_INIT_BLOCK() {
  // The one pool divides the work; OpenBLAS runs each task on one thread.
  scipy_openblas_set_num_threads(1);
  static const Backend backend{"collage.openblas", Compile};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef()
      .def("collage.openblas.describe", DescribeLibrary)
      .def("collage.openblas.matmul", MultiplyInside);
}

}  // namespace
}  // namespace collage::openblas
