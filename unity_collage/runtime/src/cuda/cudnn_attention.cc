// softmax(query @ key * scale + mask) @ value: the operations that cuDNN's engines for attention recognise.
#include <tvm/ffi/error.h>

#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cuda/cudnn_steps.h"

namespace collage::cuda {
namespace {

// The scores of queries (batch, heads, rows) for keys, in float32; and one number for each row of them.
class Scores {
 public:
  Scores(std::vector<int64_t> dims, DnnGraph* graph) : dims_(std::move(dims)), graph_(graph) {}

  DnnGraph::Tensor Whole(DLDataType dtype = DLDataType{kDLFloat, 32, 1}) {
    return graph_->Between(dims_, RowMajor(dims_), dtype);
  }

  DnnGraph::Tensor OfRows() {
    std::vector<int64_t> dims = dims_;
    dims.back() = 1;
    return graph_->Between(dims, RowMajor(dims));
  }

 private:
  static std::vector<int64_t> RowMajor(const std::vector<int64_t>& dims) {
    std::vector<int64_t> strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return strides;
  }

  std::vector<int64_t> dims_;
  DnnGraph* graph_;
};

// exp(scores - max) / sum of it, rounded to `dtype` for the second product.
DnnGraph::Tensor Softmax(DnnGraph::Tensor scores, DLDataType dtype, Scores* made, DnnGraph* graph) {
  const DnnGraph::Tensor maximum = made->OfRows();
  graph->Reduce(DnnReduction::kMax, scores, maximum);
  const DnnGraph::Tensor shifted = made->Whole();
  graph->Apply({DnnPointwiseMode::kSub}, scores, maximum, shifted);
  const DnnGraph::Tensor exponential = made->Whole();
  graph->Apply({DnnPointwiseMode::kExp}, shifted, std::nullopt, exponential);
  const DnnGraph::Tensor sum = made->OfRows();
  graph->Reduce(DnnReduction::kAdd, exponential, sum);
  // max + log(sum) is not read by any operation, but engines recognise the softmax by it.
  const DnnGraph::Tensor logarithm = made->OfRows();
  graph->Apply({DnnPointwiseMode::kLog}, sum, std::nullopt, logarithm);
  graph->Apply({DnnPointwiseMode::kAdd}, maximum, logarithm, made->OfRows());
  const DnnGraph::Tensor weights = made->Whole(dtype);
  graph->Apply({DnnPointwiseMode::kDiv}, exponential, sum, weights);
  return weights;
}

// cuDNN ends the process when the numbers of a head are not contiguous. It reads wrong numbers where a head
// or a position does not begin at a multiple of 16 bytes. `hidden` is the axis of the numbers of a head.
void CheckHeads(const View& view, const char* name, size_t hidden) {
  constexpr int64_t kVectorBytes = 16;
  bool aligned = view.dims.size() == 4 && view.strides[hidden] == 1 && view.offset % kVectorBytes == 0;
  for (size_t axis = 0; aligned && axis < view.dims.size(); ++axis) {
    const int64_t nbytes = view.strides[axis] * ItemSize(view.dtype);
    aligned = axis == hidden || view.dims[axis] == 1 || (nbytes != 0 && nbytes % kVectorBytes == 0);
  }
  if (!aligned || view.dims[hidden] % (kVectorBytes / ItemSize(view.dtype)) != 0) {
    TVM_FFI_THROW(ValueError) << "cuDNN cannot read the heads of '" << name << "' in vectors of 16 bytes";
  }
}

}  // namespace

void AddAttention(const Step& step, DnnGraph* graph) {
  for (const char* name : {"query", "value", "dst"}) CheckHeads(ArgumentOf(step, name), name, 3);
  CheckHeads(ArgumentOf(step, "key"), "key", 2);
  const View& query = ArgumentOf(step, "query");
  const View& key = ArgumentOf(step, "key");
  std::vector<int64_t> dims = query.dims;
  dims.back() = key.dims.back();
  Scores made(dims, graph);
  DnnGraph::Tensor scores = made.Whole();
  graph->Multiply(graph->InBuffer(query), graph->InBuffer(key), scores);
  const DnnGraph::Tensor scaled = made.Whole();
  graph->Apply({DnnPointwiseMode::kMul}, scores, graph->Number(step.attrs.Float("scale"), dims.size()),
               scaled);
  scores = scaled;
  if (step.args.count("mask") != 0) {
    const DnnGraph::Tensor masked = made.Whole();
    graph->Apply({DnnPointwiseMode::kAdd}, scores, graph->InBuffer(ArgumentOf(step, "mask")), masked);
    scores = masked;
  }
  const DnnGraph::Tensor weights = Softmax(scores, query.dtype, &made, graph);
  graph->Multiply(weights, graph->InBuffer(ArgumentOf(step, "value")),
                  graph->InBuffer(ArgumentOf(step, "dst")));
}

}  // namespace collage::cuda
