// Transforms and packs the weights of Winograd convolutions.
#pragma once

#include "kernels/convolution.h"
#include "kernels/winograd.h"

namespace collage::kernels {

// Transforms filters O, I, taps, taps (I of one group) and packs them as [filters][panels][I][panel], or,
// `by_panels`, as [panels][filters][I][panel]. A panel has `panel` outputs; zeros follow the last output. Of
// filters O, I, taps along the depth, taps, taps, I counts the channels of all taps along the depth, those of
// the first tap first.
AlignedBuffer PackWinogradWeights(const float* filters, const View& view, const WinogradKernels& kernels,
                                  int64_t panel, bool by_panels, int threads);

}  // namespace collage::kernels
