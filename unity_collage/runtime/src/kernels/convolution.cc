#include "kernels/convolution.h"

#include <sys/mman.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <limits>

#include "base/dtype.h"

namespace collage::kernels {
namespace {

const View& Need(const Step& step, const std::string& name) {
  const auto found = step.args.find(name);
  if (found == step.args.end()) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  if (DTypeName(found->second.dtype) != "float32") {
    TVM_FFI_THROW(ValueError) << "'" << name << "' is " << DTypeName(found->second.dtype)
                              << ", the kernels take float32";
  }
  return found->second;
}

// Checks that dims N, C, H, W lie as N, H, W, C without gaps.
void CheckImages(const std::string& name, const View& view) {
  if (view.dims.size() != 4) TVM_FFI_THROW(ValueError) << "'" << name << "' has not four dims";
  int64_t stride = 1;
  for (const int axis : {1, 3, 2, 0}) {
    if (view.dims[axis] < 1) TVM_FFI_THROW(ValueError) << "'" << name << "' is empty";
    if (view.dims[axis] != 1 && view.strides[axis] != stride)
      TVM_FFI_THROW(ValueError) << "'" << name << "' is not dense with channels innermost";
    stride *= view.dims[axis];
  }
}

float* At(const View& view, std::byte* const* buffers) {
  return reinterpret_cast<float*>(buffers[view.buffer] + view.offset);
}

PostOpCode CodeOf(const PostOp& post_op) {
  const std::string algorithm = post_op.attrs.Text("algorithm");
  const float alpha = post_op.attrs.FloatOr("alpha", 0), beta = post_op.attrs.FloatOr("beta", 0);
  if (post_op.kind == "binary" && algorithm == "add") return {PostOpCode::kAdd, 0, 0, nullptr};
  if (post_op.kind == "binary" && algorithm == "mul") return {PostOpCode::kMultiply, 0, 0, nullptr};
  if (post_op.kind == "eltwise" && algorithm == "clip") return {PostOpCode::kClip, alpha, beta, nullptr};
  if (post_op.kind == "eltwise" && algorithm == "relu" && alpha == 0)
    return {PostOpCode::kClip, 0, std::numeric_limits<float>::infinity(), nullptr};
  if (post_op.kind == "eltwise" && algorithm == "relu") return {PostOpCode::kLeaky, alpha, 0, nullptr};
  if (post_op.kind == "eltwise" && algorithm == "logistic") return {PostOpCode::kSigmoid, 0, 0, nullptr};
  if (post_op.kind == "eltwise" && algorithm == "swish") return {PostOpCode::kSwish, alpha, 0, nullptr};
  TVM_FFI_THROW(ValueError) << "the kernels have no post-op " << post_op.kind << " " << algorithm;
  TVM_FFI_UNREACHABLE();
}

}  // namespace

Convolution::Convolution(const Program& program, const Step& step, const std::byte* constants)
    : source_(Need(step, "src")), result_(Need(step, "dst")), weights_view_(Need(step, "weights")) {
  CheckImages("src", source_);
  CheckImages("dst", result_);
  const std::vector<int64_t> padding = step.attrs.Ints("padding_l"), &filters = weights_view_.dims;
  if (padding.size() != 2) TVM_FFI_THROW(ValueError) << "'padding_l' has not two numbers";
  pad_top_ = padding[0];
  pad_left_ = padding[1];
  if (filters.size() != 4 || filters[0] != result_.dims[1] || filters[2] != 3 || filters[3] != 3 ||
      result_.dims[0] != source_.dims[0])
    TVM_FFI_THROW(ValueError) << "the dims are not those of a convolution with filters of 3x3";
  const Buffer& buffer = program.buffers[weights_view_.buffer];
  if (buffer.place != Place::kConstant) TVM_FFI_THROW(ValueError) << "'weights' is no constant";
  filters_ = reinterpret_cast<const float*>(constants + buffer.where + weights_view_.offset);
  ReadBias(step);
  ReadPostOps(step);
}

void Convolution::ReadBias(const Step& step) {
  if (step.args.count("bias") == 0) return;
  bias_ = Need(step, "bias");
  const int64_t channels = result_.dims[1];
  if (bias_->dims != std::vector<int64_t>{channels} || (channels > 1 && bias_->strides[0] != 1))
    TVM_FFI_THROW(ValueError) << "'bias' is not one number for each channel";
}

void Convolution::ReadPostOps(const Step& step) {
  if (step.post_ops.size() > kMaxPostOps)
    TVM_FFI_THROW(ValueError) << "more than " << kMaxPostOps << " post-ops";
  for (const PostOp& post_op : step.post_ops) {
    post_ops_.push_back(CodeOf(post_op));
    operands_.push_back(post_op.arg.value_or(result_));
    if (!post_op.arg.has_value()) continue;
    CheckImages("operand", *post_op.arg);
    if (post_op.arg->dims != result_.dims || !SameDType(post_op.arg->dtype, result_.dtype))
      TVM_FFI_THROW(ValueError) << "an operand is not like the result";
  }
}

void Convolution::Run(std::byte* const* buffers, std::byte* scratch) const {
  Call call;
  call.source = At(source_, buffers);
  call.result = At(result_, buffers);
  for (size_t i = 0; i < post_ops_.size(); ++i) {
    call.post_ops[i] = post_ops_[i];
    call.post_ops[i].operand = At(operands_[i], buffers);
  }
  call.finish = {bias_.has_value() ? At(*bias_, buffers) : nullptr, call.post_ops,
                 static_cast<int64_t>(post_ops_.size())};
  Compute(call, reinterpret_cast<float*>(scratch));
}

std::unique_ptr<Convolution> MakeConvolution(const Program& program, const Step& step,
                                             const std::byte* constants, int threads) {
  if (step.primitive == "winograd") return MakeWinograd(program, step, constants, threads);
  if (step.primitive == "grouped") return MakeGrouped(program, step, constants, threads);
  TVM_FFI_THROW(ValueError) << "there is no primitive '" << step.primitive << "' here";
  TVM_FFI_UNREACHABLE();
}

AlignedBuffer Zeros(int64_t count) {
  AlignedBuffer zeros(count * sizeof(float));
  std::fill_n(zeros.data(), zeros.nbytes(), std::byte{0});
  return zeros;
}

void PreferLargePages(const AlignedBuffer& buffer) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(buffer.data()) + kPage - 1) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(buffer.data() + buffer.nbytes()) / kPage * kPage;
  // Advice only: a system that cannot follow it says so, and nothing is lost.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace collage::kernels
