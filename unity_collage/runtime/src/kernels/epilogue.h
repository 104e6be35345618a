// The epilogue of a convolution: what is applied to a result before it is stored.
#pragma once

#include <cstdint>

#include "kernels/elements.h"

namespace collage::kernels {

// One post-operation. Its operand has the layout of the result.
struct PostOpCode {
  enum Kind { kClip, kLeaky, kSigmoid, kSwish, kAdd, kMultiply } kind;
  float alpha, beta;
  Elements operand;
};

struct Epilogue {
  // One element for each channel, or null.
  const float* bias;
  const PostOpCode* post_ops;
  int64_t num_post_ops;
};

}  // namespace collage::kernels
