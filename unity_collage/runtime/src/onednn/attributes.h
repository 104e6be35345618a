// A step's post-ops as a primitive attribute.
#pragma once

#include <utility>
#include <vector>

#include "base/program.h"
#include "onednn/handles.h"

namespace collage::onednn {

// Attribute with the step's post-ops and a scratchpad that the caller provides.
PrimitiveAttr MakeAttribute(const std::vector<PostOp>& post_ops);

// The operands of binary post-ops with the argument id that each has at execution.
std::vector<std::pair<int, View>> PostOpArguments(const std::vector<PostOp>& post_ops);

}  // namespace collage::onednn
