// Weights as the kernels of Winograd convolutions read them.
#pragma once

#include "kernels/convolution.h"
#include "kernels/winograd.h"

namespace collage::kernels {

// Filters O, I, 3, 3, transformed, as [points][panels][I][outputs of a panel], zeros behind the last output.
AlignedBuffer PackWinogradWeights(const float* filters, const View& view, const WinogradKernels& kernels,
                                  int threads);

}  // namespace collage::kernels
