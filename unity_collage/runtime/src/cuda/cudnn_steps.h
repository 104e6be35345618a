// The steps of a program as graphs of cuDNN's operations.
#pragma once

#include <memory>

#include "base/program.h"
#include "cuda/cudnn_operations.h"
#include "cuda/cudnn_plan.h"

namespace collage::cuda {

// The graph of a step: a convolution with its bias and post-operations, an attention, a pooling or a layer
// normalization.
std::unique_ptr<DnnGraph> GraphOf(const Step& step);

DnnDemands DemandsOf(const Step& step);

// The argument `name` of a step; throws an error that names it if there is none.
const View& ArgumentOf(const Step& step, const char* name);

// Each adds the operations of one kind of step.
void AddConvolution(const Step& step, DnnGraph* graph);
void AddAttention(const Step& step, DnnGraph* graph);
void AddPooling(const Step& step, DnnGraph* graph);
void AddLayerNorm(const Step& step, DnnGraph* graph);

}  // namespace collage::cuda
