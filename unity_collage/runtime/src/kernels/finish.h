// What is done to the numbers of a result before they are stored.
#pragma once

#include <cstdint>

#include "kernels/numbers.h"

namespace collage::kernels {

// Work on a result before it is stored. An operand lies as the result does.
struct PostOpCode {
  enum Kind { kClip, kLeaky, kSigmoid, kSwish, kAdd, kMultiply } kind;
  float alpha, beta;
  Numbers operand;
};

struct Finish {
  // One for each channel, or null.
  const float* bias;
  const PostOpCode* post_ops;
  int64_t num_post_ops;
};

}  // namespace collage::kernels
