// Weights as the kernels of Winograd convolutions read them.
#pragma once

#include "kernels/convolution.h"
#include "kernels/winograd.h"

namespace collage::kernels {

// Filters O, I of a group, taps, taps, transformed, as [filters][panels][I][panel] with so many outputs in a
// `panel`, zeros behind the last output; of several groups as [panels][filters][I][panel]. Of filters O, I,
// taps along the depth, taps, taps I is the channels of all taps along the depth, one tap's behind the other's.
AlignedBuffer PackWinogradWeights(const float* filters, const View& view, const WinogradKernels& kernels,
                                  int64_t panel, bool by_panels, int threads);

}  // namespace collage::kernels
