// A step of a program of our kernels, ready to run.
#pragma once

#include <memory>
#include <string>

#include "base/program.h"
#include "kernels/numbers.h"

namespace collage::kernels {

// Steps with fewer multiplications than this take less time than waking a second thread.
constexpr int64_t kWorthSharing = 1 << 16;

inline int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

class PreparedStep {
 public:
  virtual ~PreparedStep() = default;

  // What one run needs for itself.
  virtual size_t ScratchBytes() const = 0;

  // For example "winograd 4x4 avx512, 14 blocks of 14 tiles".
  virtual std::string Description() const = 0;

  // buffers[i] is the first byte of buffer i in this call.
  virtual void Run(std::byte* const* buffers, std::byte* scratch) const = 0;
};

// A step of any primitive that there is; weights are packed for its kernels here.
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
const View& NeedNumbers(const Step& step, const std::string& name);

void CheckNumbers(const std::string& name, const View& view);

// The same for what is float32 only.
const View& NeedFloats(const Step& step, const std::string& name);

// Number `index` of a view in this call, counted in memory.
Numbers NumbersAt(const View& view, std::byte* const* buffers, int64_t index = 0);
float* FloatsAt(const View& view, std::byte* const* buffers);

}  // namespace collage::kernels
