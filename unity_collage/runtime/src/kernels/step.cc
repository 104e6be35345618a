#include "kernels/step.h"

#include <tvm/ffi/error.h>

#include "base/dtype.h"

namespace collage::kernels {

std::unique_ptr<PreparedStep> MakeStep(const Program& program, const Step& step, const std::byte* constants,
                                       int threads) {
  if (step.primitive == "winograd") return MakeWinograd(program, step, constants, threads);
  if (step.primitive == "grouped") return MakeGrouped(program, step, constants, threads);
  if (step.primitive == "attention") return MakeAttention(step, threads);
  TVM_FFI_THROW(ValueError) << "there is no primitive '" << step.primitive << "' here";
  TVM_FFI_UNREACHABLE();
}

const View& NeedFloats(const Step& step, const std::string& name) {
  const auto found = step.args.find(name);
  if (found == step.args.end()) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  if (DTypeName(found->second.dtype) != "float32") {
    TVM_FFI_THROW(ValueError) << "'" << name << "' is " << DTypeName(found->second.dtype)
                              << ", the kernels take float32";
  }
  return found->second;
}

float* FloatsAt(const View& view, std::byte* const* buffers) {
  return reinterpret_cast<float*>(buffers[view.buffer] + view.offset);
}

}  // namespace collage::kernels
