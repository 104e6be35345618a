// Constant weights in the layout that a primitive has chosen for them.
#pragma once

#include "base/aligned_buffer.h"
#include "onednn/handles.h"

namespace collage::onednn {

// Reorders the weights at `plain_data` from `plain` to `packed`; empty when the layouts are equal.
AlignedBuffer PackWeights(const_dnnl_memory_desc_t plain, const std::byte* plain_data,
                          const_dnnl_memory_desc_t packed);

}  // namespace collage::onednn
