// What our convolutions have in common: a source and a result, and what is done before a result is stored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/program.h"
#include "kernels/finish.h"

namespace collage::kernels {

constexpr size_t kMaxPostOps = 8;
// Convolutions with fewer multiplications than this take less time than waking a second thread.
constexpr int64_t kWorthSharing = 1 << 18;

inline int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Addresses of one run.
struct Call {
  const float* source;
  float* result;
  PostOpCode post_ops[kMaxPostOps];
  Finish finish;
};

class Convolution {
 public:
  virtual ~Convolution() = default;

  // What one run needs for itself.
  virtual size_t ScratchBytes() const = 0;

  // For example "winograd 4x4 avx512, 14 blocks of 14 tiles".
  virtual std::string Description() const = 0;

  // buffers[i] is the first byte of buffer i in this call.
  void Run(std::byte* const* buffers, std::byte* scratch) const;

 protected:
  // Checks the views of a step whose weights are constants, O, I, 3, 3.
  Convolution(const Program& program, const Step& step, const std::byte* constants);

  virtual void Compute(const Call& call, float* scratch) const = 0;

  View source_, result_, weights_view_;
  const float* filters_;
  int64_t pad_top_, pad_left_;

 private:
  void ReadBias(const Step& step);
  void ReadPostOps(const Step& step);

  std::optional<View> bias_;
  std::vector<PostOpCode> post_ops_;
  // By post-op; only those with an operand are read.
  std::vector<View> operands_;
};

// A step "winograd" or "grouped", ready to run; weights are packed for its kernels here.
std::unique_ptr<Convolution> MakeConvolution(const Program& program, const Step& step,
                                             const std::byte* constants, int threads);
std::unique_ptr<Convolution> MakeWinograd(const Program& program, const Step& step,
                                          const std::byte* constants, int threads);
std::unique_ptr<Convolution> MakeGrouped(const Program& program, const Step& step, const std::byte* constants,
                                         int threads);

AlignedBuffer Zeros(int64_t count);

// Asks for large pages: what is read from end to end then needs fewer look-ups of addresses.
void PreferLargePages(const AlignedBuffer& buffer);

}  // namespace collage::kernels
