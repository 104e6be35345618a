// A step's post-ops and factors as a primitive attribute.
#pragma once

#include <utility>
#include <vector>

#include "base/program.h"
#include "onednn/handles.h"

namespace collage::onednn {

// The name of a step's argument with a factor for each output channel of products of bytes.
inline constexpr const char* kWeightsScale = "weights_scale";

// The attribute with the step's post-ops and factors, and a scratchpad that the caller provides.
PrimitiveAttr MakeAttribute(const Step& step);

// The operands of binary post-ops, each with its argument id at execution.
std::vector<std::pair<int, View>> PostOpArguments(const std::vector<PostOp>& post_ops);

}  // namespace collage::onednn
