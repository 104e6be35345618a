// A step of a program, prepared for our kernels.
#pragma once

#include <memory>
#include <string>

#include "base/program.h"
#include "kernels/elements.h"

namespace collage::kernels {

// Steps with fewer multiplications than this take less time than waking a second thread.
constexpr int64_t kMinParallelWork = 1 << 16;

inline int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

class PreparedStep {
 public:
  virtual ~PreparedStep() = default;

  // The scratch that one run needs.
  virtual size_t ScratchBytes() const = 0;

  // For example "winograd 4x4 of 3x3 avx512, 14 blocks of 14 tiles".
  virtual std::string Description() const = 0;

  // buffers[i] is the first byte of buffer i in this call.
  virtual void Run(std::byte* const* buffers, std::byte* scratch) const = 0;
};

// Prepares a step of any primitive: checks it, and packs its weights.
std::unique_ptr<PreparedStep> MakeStep(const Program& program, const Step& step, const std::byte* constants,
                                       int threads);

std::unique_ptr<PreparedStep> MakeWinograd(const Program& program, const Step& step,
                                           const std::byte* constants, int threads);
std::unique_ptr<PreparedStep> MakeGrouped(const Program& program, const Step& step,
                                          const std::byte* constants, int threads);
std::unique_ptr<PreparedStep> MakeAttention(const Step& step, int threads);
std::unique_ptr<PreparedStep> MakeRecurrent(const Program& program, const Step& step,
                                            const std::byte* constants, int threads);

// The view of an argument; throws when it is missing or neither float32 nor bfloat16.
const View& FloatArgument(const Step& step, const std::string& name);

void CheckFloatType(const std::string& name, const View& view);

// The view of an argument; throws when it is missing or not float32.
const View& Float32Argument(const Step& step, const std::string& name);

// Element `index` of a view in this call, counted in memory, not along its dims.
Elements ElementsAt(const View& view, std::byte* const* buffers, int64_t index = 0);
float* FloatsAt(const View& view, std::byte* const* buffers);

}  // namespace collage::kernels
