// A step's post-ops as a primitive attribute.
#pragma once

#include <utility>
#include <vector>

#include "base/program.h"
#include "onednn/handles.h"

namespace collage::onednn {

// The attribute with the step's post-ops and a scratchpad that the caller provides.
PrimitiveAttr MakeAttribute(const std::vector<PostOp>& post_ops);

// The operands of binary post-ops, each with its argument id at execution.
std::vector<std::pair<int, View>> PostOpArguments(const std::vector<PostOp>& post_ops);

}  // namespace collage::onednn
