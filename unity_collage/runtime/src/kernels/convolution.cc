#include "kernels/convolution.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "kernels/shared_weights.h"

namespace collage::kernels {
namespace {

// Elements from one pixel of N, C, H, W to the next: the channels, or more in a slice of a wider tensor.
int64_t PixelOf(const View& view) {
  if (view.dims.size() != 4) return 0;
  const int64_t width = view.dims[3], height = view.dims[2];
  if (width > 1) return view.strides[3];
  if (height > 1) return view.strides[2];
  return view.dims[0] > 1 ? view.strides[0] : view.dims[1];
}

int64_t DepthOf(const View& view) { return view.dims.size() == 5 ? view.dims[2] : 1; }

// A view N, C, D, H, W as N * D images; other views unchanged.
View AsImages(const std::string& name, const View& view) {
  if (view.dims.size() != 5) return view;
  const std::vector<int64_t>&dims = view.dims, &strides = view.strides;
  if (dims[0] != 1 && dims[2] != 1 && strides[0] != dims[2] * strides[2])
    TVM_FFI_THROW(ValueError) << "the volumes of '" << name << "' are not contiguous";
  View images = view;
  images.dims = {dims[0] * dims[2], dims[1], dims[3], dims[4]};
  images.strides = {dims[2] != 1 ? strides[2] : strides[0], strides[1], strides[3], strides[4]};
  return images;
}

// Checks that a view N, C, H, W is laid out as N, H, W, C. Pixels are `pixel` elements apart; there are no
// other gaps.
void CheckImages(const std::string& name, const View& view, int64_t pixel) {
  if (view.dims.size() != 4) TVM_FFI_THROW(ValueError) << "'" << name << "' does not have four dims";
  if (pixel < view.dims[1]) TVM_FFI_THROW(ValueError) << "the pixels of '" << name << "' overlap";
  int64_t stride = 1;
  for (const int axis : {1, 3, 2, 0}) {
    if (view.dims[axis] < 1) TVM_FFI_THROW(ValueError) << "'" << name << "' is empty";
    if (view.dims[axis] != 1 && view.strides[axis] != stride)
      TVM_FFI_THROW(ValueError) << "'" << name << "' is not dense with channels innermost";
    stride = axis == 1 ? pixel : stride * view.dims[axis];
  }
}

// The arguments "src", "src1", ..., as images.
std::vector<View> FieldsOf(const Step& step) {
  std::vector<View> fields;
  for (std::string name = "src"; fields.empty() || step.args.count(name) != 0;) {
    const View& given = FloatArgument(step, name);
    if (DepthOf(given) != DepthOf(FloatArgument(step, "src")))
      TVM_FFI_THROW(ValueError) << "the fields of the source have different depths";
    const View view = AsImages(name, given);
    CheckImages(name, view, view.dims.size() == 4 ? view.dims[1] : 0);
    fields.push_back(view);
    name = "src" + std::to_string(fields.size());
  }
  if (fields.size() > kMaxFields) TVM_FFI_THROW(ValueError) << "more than " << kMaxFields << " fields";
  return fields;
}

// The concatenation of the fields along the channels; only its dims mean something.
View Joined(const std::vector<View>& fields) {
  View joined = fields[0];
  for (size_t i = 1; i < fields.size(); ++i) {
    for (const int axis : {0, 2, 3}) {
      if (fields[i].dims[axis] != joined.dims[axis])
        TVM_FFI_THROW(ValueError) << "the fields of the source have different sizes";
    }
    joined.dims[1] += fields[i].dims[1];
  }
  return joined;
}

PostOpCode CodeOf(const PostOp& post_op) {
  const std::string algorithm = post_op.attrs.Text("algorithm");
  const float alpha = post_op.attrs.FloatOr("alpha", 0), beta = post_op.attrs.FloatOr("beta", 0);
  if (post_op.kind == "binary" && algorithm == "add") return {PostOpCode::kAdd, 0, 0, {}};
  if (post_op.kind == "binary" && algorithm == "mul") return {PostOpCode::kMultiply, 0, 0, {}};
  if (post_op.kind == "eltwise" && algorithm == "clip") return {PostOpCode::kClip, alpha, beta, {}};
  if (post_op.kind == "eltwise" && algorithm == "relu" && alpha == 0)
    return {PostOpCode::kClip, 0, std::numeric_limits<float>::infinity(), {}};
  if (post_op.kind == "eltwise" && algorithm == "relu") return {PostOpCode::kLeaky, alpha, 0, {}};
  if (post_op.kind == "eltwise" && algorithm == "logistic") return {PostOpCode::kSigmoid, 0, 0, {}};
  if (post_op.kind == "eltwise" && algorithm == "swish") return {PostOpCode::kSwish, alpha, 0, {}};
  TVM_FFI_THROW(ValueError) << "the kernels have no post-op " << post_op.kind << " " << algorithm;
  TVM_FFI_UNREACHABLE();
}

// The elements of a view of bfloat16 as float32, with the view's strides.
std::vector<float> Widened(const View& view, const std::byte* first) {
  int64_t last = 0;
  for (size_t axis = 0; axis < view.dims.size(); ++axis) last += (view.dims[axis] - 1) * view.strides[axis];
  std::vector<float> widened(last + 1);
  for (int64_t i = 0; i <= last; ++i) {
    uint32_t bits = 0;  // a bfloat16 is the upper half of a float32
    std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, first + 2 * i, 2);
    std::memcpy(&widened[i], &bits, sizeof(bits));
  }
  return widened;
}

}  // namespace

Convolution::Convolution(const Program& program, const Step& step, const std::byte* constants, int threads)
    : fields_(FieldsOf(step)),
      source_(Joined(fields_)),
      result_(AsImages("dst", FloatArgument(step, "dst"))),
      weights_view_(FloatArgument(step, "weights")),
      result_pixel_(PixelOf(result_)),
      sibling_copies_(step, threads) {
  CheckImages("dst", result_, result_pixel_);
  const std::vector<int64_t> padding = step.attrs.Ints("padding_l"), &filters = weights_view_.dims;
  const size_t spatial = filters.size() - 2, rank = filters.size();
  if ((spatial != 2 && spatial != 3) || padding.size() != spatial)
    TVM_FFI_THROW(ValueError) << "'padding_l' does not have a number for each of two or three axes";
  pad_top_ = padding[spatial - 2];
  pad_left_ = padding[spatial - 1];
  if (spatial == 3) {
    depth_ = {DepthOf(FloatArgument(step, "src")), DepthOf(FloatArgument(step, "dst")),
              step.attrs.IntOr("depth_stride", 1)};
    depth_taps_ = filters[2];
    pad_front_ = padding[0];
  }
  if (filters[0] != result_.dims[1] || filters[rank - 2] != filters[rank - 1] ||
      result_.dims[0] * depth_.source != source_.dims[0] * depth_.result)
    TVM_FFI_THROW(ValueError) << "the dims are not those of a convolution with square filters";
  if (depth_.stride < 1 || fields_.size() * depth_taps_ > kMaxFields)
    TVM_FFI_THROW(ValueError) << "more than " << kMaxFields << " fields and taps along the depth";
  taps_ = filters[rank - 1];
  const Buffer& buffer = program.buffers[weights_view_.buffer];
  if (buffer.place != Place::kConstant) TVM_FFI_THROW(ValueError) << "'weights' is not a constant";
  filters_ = constants + buffer.where + weights_view_.offset;
  ReadBias(step);
  ReadPostOps(step);
}

std::shared_ptr<const AlignedBuffer> Convolution::PackedFilters(
    const std::string& layout, const std::function<AlignedBuffer(const float*)>& pack) const {
  const View& view = weights_view_;
  const std::string dtype = DTypeName(view.dtype);
  std::string key = layout + ", " + dtype;
  for (const std::vector<int64_t>* numbers : {&view.dims, &view.strides}) {
    for (const int64_t number : *numbers) key += " " + std::to_string(number);
  }
  return SharedWeights(filters_, key, [&] {
    return dtype == "float32" ? pack(reinterpret_cast<const float*>(filters_))
                              : pack(Widened(view, filters_).data());
  });
}

void Convolution::ReadBias(const Step& step) {
  if (step.args.count("bias") == 0) return;
  bias_ = Float32Argument(step, "bias");
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
    CheckFloatType("operand", *post_op.arg);
    const View operand = AsImages("operand", *post_op.arg);
    CheckImages("operand", operand, result_pixel_);
    if (operand.dims != result_.dims)
      TVM_FFI_THROW(ValueError) << "an operand does not have the result's dims";
  }
}

void Convolution::Run(std::byte* const* buffers, std::byte* scratch) const {
  Call call;
  call.field_count = 0;
  for (int64_t tap = 0; tap < depth_taps_; ++tap) {
    for (const View& field : fields_)
      call.fields[call.field_count++] = {ElementsAt(field, buffers), field.dims[1], tap - pad_front_};
  }
  call.result = ElementsAt(result_, buffers);
  for (size_t i = 0; i < post_ops_.size(); ++i) {
    call.post_ops[i] = post_ops_[i];
    call.post_ops[i].operand = ElementsAt(operands_[i], buffers);
  }
  call.epilogue = {bias_.has_value() ? FloatsAt(*bias_, buffers) : nullptr, call.post_ops,
                   static_cast<int64_t>(post_ops_.size())};
  Compute(call, reinterpret_cast<float*>(scratch));
  sibling_copies_.Run(buffers);
}

AlignedBuffer Zeros(int64_t count) {
  AlignedBuffer zeros(count * sizeof(float));
  std::fill_n(zeros.data(), zeros.nbytes(), std::byte{0});
  return zeros;
}

}  // namespace collage::kernels
