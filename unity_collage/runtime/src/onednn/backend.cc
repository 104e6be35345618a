// The oneDNN backend: kind "collage.onednn".
#include <dnnl_debug.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>

#include "base/adopt_openmp.h"
#include "base/context_pool.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/workspace.h"
#include "onednn/context.h"

namespace collage::onednn {
namespace {

class OneDnnProgram final : public Executable {
 public:
  OneDnnProgram(const Program& program, const std::byte* constants)
      : program_(program), constants_(constants), temporaries_(PlaceTemporaries(program)) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      steps_.push_back(Within(program.name + ", " + StepName(program, i),
                              [&] { return CompileStep(program, program.steps[i], constants); }));
      scratchpad_ = std::max(scratchpad_, steps_.back().ScratchpadBytes());
    }
  }

  void Run(std::byte* const* arguments) final {
    const auto context = contexts_.Take(
        [this] { return std::make_unique<Context>(program_, steps_, constants_, temporaries_); });
    const Workspace workspace(WorkspaceBytes());
    context->Bind(arguments, workspace.data());
    for (size_t i = 0; i < steps_.size(); ++i) {
      const dnnl_status_t status = context->Execute(i, steps_[i]);
      if (status != dnnl_success) Fail(i, status);
    }
    context->Wait();
  }

  size_t WorkspaceBytes() const final { return temporaries_.back() + scratchpad_; }

  std::string Implementations() final {
    std::string lines;
    for (size_t i = 0; i < steps_.size(); ++i) {
      lines += "  " + StepName(program_, i) + ": " + steps_[i].implementation + "\n";
    }
    return lines;
  }

 private:
  [[noreturn]] void Fail(size_t step, dnnl_status_t status) const {
    Within(program_.name + ", " + StepName(program_, step), [&] { Check(status); });
    TVM_FFI_UNREACHABLE();
  }

  const Program& program_;
  const std::byte* constants_;
  const std::vector<int64_t> temporaries_;
  size_t scratchpad_ = 0;
  std::vector<CompiledStep> steps_;
  ContextPool<Context> contexts_;
};

// Lets the library's parallel regions run on the pool; called before the library runs anything.
void PutOnPool() {
  static const bool done = (AdoptOpenMP(reinterpret_cast<const void*>(&dnnl_version)), true);
  static_cast<void>(done);
}

std::unique_ptr<Executable> Compile(const Program& program, const std::byte* constants) {
  PutOnPool();
  return std::make_unique<OneDnnProgram>(program, constants);
}

// What decides how fast the library is, for the fingerprint of a measured cost.
tvm::ffi::String DescribeLibrary() {
  PutOnPool();
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " " + dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
}

TVM_FFI_STATIC_INIT_BLOCK() {
  static const Backend backend{"collage.onednn", Compile};
  RegisterBackend(backend);
  tvm::ffi::reflection::GlobalDef().def("collage.onednn.describe", DescribeLibrary);
}

}  // namespace
}  // namespace collage::onednn
