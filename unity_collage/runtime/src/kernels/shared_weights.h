// Packed weights that the programs for all sizes of a function share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/aligned_buffer.h"

namespace collage::kernels {

// Returns what pack() makes of the constant at `plain`, or an equal copy that some step still holds. `layout`
// names all that the packed numbers depend on besides the constant.
std::shared_ptr<const AlignedBuffer> SharedWeights(const void* plain, const std::string& layout,
                                                   const std::function<AlignedBuffer()>& pack);

}  // namespace collage::kernels
