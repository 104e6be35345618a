#include "cuda/cudnn_steps.h"

#include <tvm/ffi/error.h>

namespace collage::cuda {
namespace {

DnnWindow WindowOf(const Attrs& attrs) {
  return DnnWindow{attrs.Ints("strides"), attrs.Ints("padding_l"), attrs.Ints("padding_r")};
}

DnnResample ModeOf(const std::string& algorithm) {
  if (algorithm == "max") return DnnResample::kMax;
  if (algorithm == "avg_include_padding") return DnnResample::kAverageWithPadding;
  if (algorithm == "avg_exclude_padding") return DnnResample::kAverageWithoutPadding;
  TVM_FFI_THROW(ValueError) << "there is no pooling '" << algorithm << "'";
  TVM_FFI_UNREACHABLE();
}

}  // namespace

std::unique_ptr<DnnGraph> GraphOf(const Step& step) {
  auto graph = std::make_unique<DnnGraph>();
  if (step.primitive == "convolution") {
    AddConvolution(step, graph.get());
  } else if (step.primitive == "attention") {
    AddAttention(step, graph.get());
  } else if (step.primitive == "pooling") {
    AddPooling(step, graph.get());
  } else if (step.primitive == "layer_normalization") {
    AddLayerNorm(step, graph.get());
  } else {
    TVM_FFI_THROW(ValueError) << "cuDNN has no graph for it";
  }
  return graph;
}

DnnDemands DemandsOf(const Step& step) {
  const bool narrow = step.args.count("src") != 0 && ArgumentOf(step, "src").dtype.bits == 16;
  const bool exact = step.primitive == "convolution" && !narrow && step.attrs.IntOr("tf32", 0) == 0;
  return DnnDemands{step.attrs.IntOr("algorithm", 0), exact};
}

const View& ArgumentOf(const Step& step, const char* name) {
  const auto found = step.args.find(name);
  if (found == step.args.end()) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  return found->second;
}

void AddPooling(const Step& step, DnnGraph* graph) {
  const DnnGraph::Tensor source = graph->InBuffer(ArgumentOf(step, "src"));
  const DnnGraph::Tensor result = graph->InBuffer(ArgumentOf(step, "dst"));
  graph->Resample(ModeOf(step.attrs.Text("pooling")), source, result, step.attrs.Ints("kernel"),
                  WindowOf(step.attrs));
}

void AddLayerNorm(const Step& step, DnnGraph* graph) {
  const View& source = ArgumentOf(step, "src");
  const DnnGraph::Tensor x = graph->InBuffer(source);
  const DnnGraph::Tensor scale = graph->InBuffer(ArgumentOf(step, "scale"));
  const DnnGraph::Tensor shift = graph->InBuffer(ArgumentOf(step, "shift"));
  const DnnGraph::Tensor epsilon = graph->Number(step.attrs.Float("epsilon"), source.dims.size());
  graph->Normalize(x, scale, shift, epsilon, graph->InBuffer(ArgumentOf(step, "dst")));
}

}  // namespace collage::cuda
