// Constant weights in the layout that a primitive has chosen for them.
#pragma once

#include <memory>

#include "base/aligned_buffer.h"
#include "onednn/handles.h"

namespace collage::onednn {

// The weights at `plain_data` reordered from `plain` to `packed`; null when the layouts are equal.
//
// Primitives that read the same weights in the same layout share one copy: those of one function for several
// sizes, and those of the variants of a model. A program that holds a copy also keeps the weights at
// `plain_data`.
std::shared_ptr<const AlignedBuffer> PackedWeights(const_dnnl_memory_desc_t plain,
                                                   const std::byte* plain_data,
                                                   const_dnnl_memory_desc_t packed);

}  // namespace collage::onednn
