// A convolution with the operators behind it: one operation for each.
#include <tvm/ffi/error.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cudnn_steps.h"

namespace collage::cuda {
namespace {

// A function that follows the convolution. Its second operand, if it has one, is a number or a view.
struct Behind {
  DnnPointwise function;
  std::optional<float> number = std::nullopt;
  const View* view = nullptr;
};

std::vector<Behind> Linear(float scale, float shift) {
  std::vector<Behind> made;
  if (scale != 1.0f) made.push_back({{DnnPointwiseMode::kMul}, scale});
  if (shift != 0.0f) made.push_back({{DnnPointwiseMode::kAdd}, shift});
  return made;
}

std::vector<Behind> Eltwise(const std::string& algorithm, float alpha, float beta) {
  static const std::map<std::string, DnnPointwiseMode> plain = {{"gelu_erf", DnnPointwiseMode::kGeluErf},
                                                                {"gelu_tanh", DnnPointwiseMode::kGeluTanh},
                                                                {"logistic", DnnPointwiseMode::kSigmoid},
                                                                {"tanh", DnnPointwiseMode::kTanh}};
  if (algorithm == "linear") return Linear(alpha, beta);
  DnnPointwise function{DnnPointwiseMode::kRelu};
  if (algorithm == "relu") {
    function.slope = alpha;
  } else if (algorithm == "clip_v2") {
    function.lower = alpha;
    function.upper = beta;
  } else if (algorithm == "swish") {
    function.mode = DnnPointwiseMode::kSwish;
    function.beta = alpha;
  } else if (plain.count(algorithm) != 0) {
    function.mode = plain.at(algorithm);
  } else {
    TVM_FFI_THROW(ValueError) << "cuDNN is given no function '" << algorithm << "'";
  }
  return {{function}};
}

std::vector<Behind> Functions(const PostOp& post) {
  const std::string algorithm = post.attrs.Text("algorithm");
  if (!post.arg.has_value()) {
    return Eltwise(algorithm, post.attrs.FloatOr("alpha", 0.0f), post.attrs.FloatOr("beta", 0.0f));
  }
  if (algorithm != "add" && algorithm != "mul") {
    TVM_FFI_THROW(ValueError) << "cuDNN is given no binary operator '" << algorithm << "'";
  }
  const DnnPointwiseMode mode = algorithm == "add" ? DnnPointwiseMode::kAdd : DnnPointwiseMode::kMul;
  return {{{mode}, std::nullopt, &*post.arg}};
}

// One number for each channel, as a tensor that is broadcast to the result.
View PerChannel(const View& bias, const View& result) {
  View view = bias;
  view.dims.assign(result.dims.size(), 1);
  view.dims[1] = bias.dims.at(0);
  // The strides of a dense tensor with axes that are nested as in the result.
  view.strides.assign(result.dims.size(), result.strides[1] == 1 ? bias.dims[0] : 1);
  view.strides[0] = bias.dims[0];
  view.strides[1] = 1;
  return view;
}

// The functions in the order in which they are applied. Engines for a sum, a bias and an activation expect
// the sum before the bias.
std::vector<Behind> AllBehind(const Step& step, const View* bias) {
  std::vector<Behind> all;
  for (const PostOp& post : step.post_ops) {
    for (const Behind& function : Functions(post)) all.push_back(function);
  }
  if (bias == nullptr) return all;
  const bool sum_first = !all.empty() && all[0].view != nullptr &&
                         all[0].function.mode == DnnPointwiseMode::kAdd &&
                         all[0].view->dims == ArgumentOf(step, "dst").dims;
  all.insert(all.begin() + (sum_first ? 1 : 0), Behind{{DnnPointwiseMode::kAdd}, std::nullopt, bias});
  return all;
}

std::optional<DnnGraph::Tensor> Operand(const Behind& behind, size_t rank, DnnGraph* graph) {
  if (behind.number.has_value()) return graph->Number(*behind.number, rank);
  if (behind.view != nullptr) return graph->InBuffer(*behind.view);
  return std::nullopt;
}

}  // namespace

void AddConvolution(const Step& step, DnnGraph* graph) {
  const View& result = ArgumentOf(step, "dst");
  std::optional<View> bias;
  if (step.args.count("bias") != 0) bias = PerChannel(ArgumentOf(step, "bias"), result);
  const std::vector<Behind> behind = AllBehind(step, bias.has_value() ? &*bias : nullptr);
  const DnnWindow window{step.attrs.Ints("strides"), step.attrs.Ints("padding_l"),
                         step.attrs.Ints("padding_r")};
  std::vector<int64_t> dilations = step.attrs.Ints("dilates");
  for (int64_t& dilation : dilations) dilation += 1;  // the attribute counts the elements between two taps

  const DnnGraph::Tensor source = graph->InBuffer(ArgumentOf(step, "src"));
  const DnnGraph::Tensor weights = graph->InBuffer(ArgumentOf(step, "weights"));
  const DnnGraph::Tensor stored = graph->InBuffer(result);
  const auto made = [&](size_t i) {
    return i == behind.size() ? stored : graph->Between(result.dims, result.strides);
  };
  DnnGraph::Tensor last = made(0);
  graph->Convolve(source, weights, last, window, dilations);
  for (size_t i = 0; i < behind.size(); ++i) {
    const std::optional<DnnGraph::Tensor> other = Operand(behind[i], result.dims.size(), graph);
    const DnnGraph::Tensor next = made(i + 1);
    graph->Apply(behind[i].function, last, other, next);
    last = next;
  }
}

}  // namespace collage::cuda
