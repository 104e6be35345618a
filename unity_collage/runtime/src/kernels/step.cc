#include "kernels/step.h"

#include <tvm/ffi/error.h>

#include "base/dtype.h"

namespace collage::kernels {

std::unique_ptr<PreparedStep> MakeStep(const Program& program, const Step& step, const std::byte* constants,
                                       int threads) {
  if (step.primitive == "winograd") return MakeWinograd(program, step, constants, threads);
  if (step.primitive == "grouped") return MakeGrouped(program, step, constants, threads);
  if (step.primitive == "attention") return MakeAttention(step, threads);
  if (step.primitive == "recurrent") return MakeRecurrent(program, step, constants, threads);
  TVM_FFI_THROW(ValueError) << "the kernels have no primitive '" << step.primitive << "'";
  TVM_FFI_UNREACHABLE();
}

namespace {

void CheckType(const std::string& name, const View& view, const char* needed, bool fits) {
  if (!fits) {
    TVM_FFI_THROW(ValueError) << "'" << name << "' is " << DTypeName(view.dtype) << ", the kernels take "
                              << needed;
  }
}

const View& Need(const Step& step, const std::string& name) {
  const auto found = step.args.find(name);
  if (found == step.args.end()) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  return found->second;
}

bool IsFloat32(const View& view) { return view.dtype.code == kDLFloat && view.dtype.bits == 32; }
bool IsBfloat16(const View& view) { return view.dtype.code == kDLBfloat && view.dtype.bits == 16; }

}  // namespace

void CheckFloatType(const std::string& name, const View& view) {
  CheckType(name, view, "float32 and bfloat16", IsFloat32(view) || IsBfloat16(view));
}

const View& FloatArgument(const Step& step, const std::string& name) {
  const View& view = Need(step, name);
  CheckFloatType(name, view);
  return view;
}

const View& Float32Argument(const Step& step, const std::string& name) {
  const View& view = Need(step, name);
  CheckType(name, view, "float32", IsFloat32(view));
  return view;
}

Elements ElementsAt(const View& view, std::byte* const* buffers, int64_t index) {
  return {buffers[view.buffer] + view.offset + index * ItemSize(view.dtype), IsBfloat16(view)};
}

float* FloatsAt(const View& view, std::byte* const* buffers) {
  return reinterpret_cast<float*>(buffers[view.buffer] + view.offset);
}

}  // namespace collage::kernels
