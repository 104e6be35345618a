// What our convolutions have in common: a source and a result, and what is done before a result is stored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/program.h"
#include "kernels/beside.h"
#include "kernels/finish.h"
#include "kernels/step.h"

namespace collage::kernels {

constexpr size_t kMaxPostOps = 8, kMaxFields = 8;

// Addresses of one run.
struct Call {
  SourceField fields[kMaxFields];
  int64_t field_count;
  Numbers result;
  PostOpCode post_ops[kMaxPostOps];
  Finish finish;
};

class Convolution : public PreparedStep {
 public:
  void Run(std::byte* const* buffers, std::byte* scratch) const final;

 protected:
  // Checks the views of a step whose weights are constants, O, I, taps, taps, or O, I, taps along the depth,
  // taps, taps; volumes are then seen as the images that they are made of.
  Convolution(const Program& program, const Step& step, const std::byte* constants, int threads);

  virtual void Compute(const Call& call, float* scratch) const = 0;

  // What the source is joined of along the channels, "src", "src1", ...: one field for most.
  std::vector<View> fields_;
  // Its dims are those of all fields together.
  View source_, result_, weights_view_;
  // Where the view of the weights begins.
  const float* filters_;
  int64_t taps_, pad_top_, pad_left_;
  // Along the depth of volumes.
  int64_t depth_taps_ = 1, pad_front_ = 0;
  Depth depth_;
  // Numbers from one pixel of the result to the next.
  int64_t result_pixel_;

 private:
  void ReadFilters(const Buffer& buffer, const std::byte* constants);
  void ReadBias(const Step& step);
  void ReadPostOps(const Step& step);

  std::optional<View> bias_;
  std::vector<PostOpCode> post_ops_;
  // By post-op; only those with an operand are read.
  std::vector<View> operands_;
  Beside beside_;
  // Filters that were given as bfloat16.
  std::vector<float> widened_;
};

AlignedBuffer Zeros(int64_t count);

}  // namespace collage::kernels
