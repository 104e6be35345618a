// What our convolutions have in common: their source, weights and result, and the epilogue.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/program.h"
#include "kernels/epilogue.h"
#include "kernels/sibling_copies.h"
#include "kernels/step.h"

namespace collage::kernels {

constexpr size_t kMaxPostOps = 8, kMaxFields = 8;

// The addresses of one run.
struct Call {
  SourceField fields[kMaxFields];
  int64_t field_count;
  Elements result;
  PostOpCode post_ops[kMaxPostOps];
  Epilogue epilogue;
};

class Convolution : public PreparedStep {
 public:
  void Run(std::byte* const* buffers, std::byte* scratch) const final;

 protected:
  // Checks the views of a step. Its weights are a constant with dims O, I, taps, taps, or, of volumes, O, I,
  // taps along the depth, taps, taps. A volume is treated as a number of images.
  Convolution(const Program& program, const Step& step, const std::byte* constants, int threads);

  virtual void Compute(const Call& call, float* scratch) const = 0;

  // What pack() makes of the weights, one copy for all steps that read them alike. pack() gets the first
  // element of the weights' view, as float32. `layout` names all that it depends on besides the view.
  std::shared_ptr<const AlignedBuffer> PackedFilters(
      const std::string& layout, const std::function<AlignedBuffer(const float*)>& pack) const;

  // The arguments "src", "src1", ...: the source is their concatenation along the channels. Most convolutions
  // have one.
  std::vector<View> fields_;
  // The source's dims are those of the concatenation.
  View source_, result_, weights_view_;
  int64_t taps_, pad_top_, pad_left_;
  // Taps and padding along the depth of volumes.
  int64_t depth_taps_ = 1, pad_front_ = 0;
  Depth depth_;
  // Elements from one pixel of the result to the next.
  int64_t result_pixel_;

 private:
  void ReadBias(const Step& step);
  void ReadPostOps(const Step& step);

  std::optional<View> bias_;
  std::vector<PostOpCode> post_ops_;
  // The operand of each post-op; the result's view for a post-op without one.
  std::vector<View> operands_;
  SiblingCopies sibling_copies_;
  // The first element of the weights' view.
  const std::byte* filters_;
};

AlignedBuffer Zeros(int64_t count);

}  // namespace collage::kernels
