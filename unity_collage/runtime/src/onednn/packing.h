// Constant weights in the layout that a primitive chose for them.
#pragma once

#include "base/aligned_buffer.h"
#include "onednn/handles.h"

namespace collage::onednn {

// Reorders the weights at `plain_data` from `plain` to `packed`; an empty buffer when they already lie so.
AlignedBuffer PackWeights(const_dnnl_memory_desc_t plain, const std::byte* plain_data,
                          const_dnnl_memory_desc_t packed);

}  // namespace collage::onednn
