#include "cuda/cudnn_operations.h"

#include <tvm/ffi/error.h>

#include <cstdio>
#include <utility>

#include "base/dtype.h"

namespace collage::cuda {
namespace {

// cudnnDataType_t
constexpr int kFloat32 = 0;
constexpr int kFloat16 = 2;
constexpr int kBfloat16 = 9;

constexpr int kCrossCorrelation = 1;  // cudnnConvolutionMode_t
constexpr int kPropagateNan = 1;      // cudnnNanPropagation_t
constexpr int kZeroPadding = 0;       // cudnnPaddingMode_t
constexpr int kInfinitePadding = 1;   // cudnnPaddingMode_t, of -infinity
constexpr int kLayerNorm = 0;         // cudnnBackendNormMode_t
constexpr int kInference = 0;         // cudnnBackendNormFwdPhase_t

// The library reads vectors of this many bytes where the address allows it.
constexpr int64_t kVectorBytes = 16;

// The number of a tensor to the library, which some engines expect to be positive.
int64_t IdOf(DnnGraph::Tensor tensor) { return static_cast<int64_t>(tensor) + 1; }

int TypeOf(DLDataType dtype) {
  if (dtype.code == kDLFloat && dtype.bits == 32) return kFloat32;
  if (dtype.code == kDLFloat && dtype.bits == 16) return kFloat16;
  if (dtype.code == kDLBfloat && dtype.bits == 16) return kBfloat16;
  TVM_FFI_THROW(ValueError) << "cuDNN's operations take float32, float16 and bfloat16, not "
                            << DTypeName(dtype);
  TVM_FFI_UNREACHABLE();
}

}  // namespace

DnnGraph::Tensor DnnGraph::InBuffer(const View& view) {
  int64_t alignment = kVectorBytes;
  while (view.offset % alignment != 0) alignment /= 2;
  const Tensor tensor = Add("buffer", view.dims, view.strides, view.dtype, alignment);
  tensors_.back().Finalize();
  bound_.push_back(Bound{IdOf(tensor), view.buffer, view.offset, alignment});
  return tensor;
}

DnnGraph::Tensor DnnGraph::Between(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                                   DLDataType dtype) {
  const Tensor tensor = Add("between", dims, strides, dtype, kVectorBytes);
  tensors_.back().SetFlag(dnn_attr::kTensorIsVirtual, true).Finalize();
  return tensor;
}

DnnGraph::Tensor DnnGraph::Number(float value, size_t rank) {
  const std::vector<int64_t> ones(rank, 1);
  const Tensor tensor = Add("number", ones, ones, DLDataType{kDLFloat, 32, 1}, kVectorBytes);
  tensors_.back().SetFlag(dnn_attr::kTensorIsByValue, true).Finalize();
  bound_.push_back(Bound{IdOf(tensor), -1, 0, 1, &numbers_.emplace_back(value)});
  return tensor;
}

void DnnGraph::Convolve(Tensor source, Tensor weights, Tensor result, const DnnWindow& window,
                        const std::vector<int64_t>& dilations) {
  Sign("convolve", {IdOf(source), IdOf(weights), IdOf(result)});
  for (const std::vector<int64_t>* part : {&window.strides, &window.before, &window.after, &dilations})
    Sign("", *part);
  DnnDescriptor convolution(dnn_kind::kConvolution);
  convolution.SetEnum(dnn_attr::kConvolutionComputeType, DnnType::kDataType, kFloat32)
      .SetEnum(dnn_attr::kConvolutionMode, DnnType::kConvolutionMode, kCrossCorrelation)
      .SetInt(dnn_attr::kConvolutionSpatialDims, static_cast<int64_t>(dilations.size()))
      .SetInts(dnn_attr::kConvolutionPrePaddings, window.before)
      .SetInts(dnn_attr::kConvolutionPostPaddings, window.after)
      .SetInts(dnn_attr::kConvolutionDilations, dilations)
      .SetInts(dnn_attr::kConvolutionStrides, window.strides)
      .Finalize();
  operations_.emplace_back(dnn_kind::kConvolutionForward)
      .SetDescriptor(dnn_attr::kForwardX, tensors_[source])
      .SetDescriptor(dnn_attr::kForwardW, tensors_[weights])
      .SetDescriptor(dnn_attr::kForwardY, tensors_[result])
      .SetDescriptor(dnn_attr::kForwardConvolution, convolution)
      .SetFloat(dnn_attr::kForwardAlpha, 1.0f)
      .SetFloat(dnn_attr::kForwardBeta, 0.0f)
      .Finalize();
}

void DnnGraph::Apply(const DnnPointwise& function, Tensor operand, std::optional<Tensor> other,
                     Tensor result) {
  Sign("apply",
       {static_cast<int>(function.mode), IdOf(operand), other.has_value() ? IdOf(*other) : 0, IdOf(result)});
  for (const double number : {function.lower, function.upper, function.slope, function.beta}) {
    char exact[32];
    std::snprintf(exact, sizeof(exact), "%a;", number);
    signature_ += exact;
  }
  DnnDescriptor pointwise(dnn_kind::kPointwise);
  pointwise.SetEnum(dnn_attr::kPointwiseMode, DnnType::kPointwiseMode, static_cast<int>(function.mode))
      .SetEnum(dnn_attr::kPointwiseMathPrecision, DnnType::kDataType, kFloat32);
  if (function.mode == DnnPointwiseMode::kRelu) {
    pointwise.SetEnum(dnn_attr::kPointwiseNanPropagation, DnnType::kNanPropagation, kPropagateNan)
        .SetDouble(dnn_attr::kReluLowerClip, function.lower)
        .SetDouble(dnn_attr::kReluUpperClip, function.upper)
        .SetDouble(dnn_attr::kReluLowerClipSlope, function.slope);
  }
  if (function.mode == DnnPointwiseMode::kSwish) pointwise.SetDouble(dnn_attr::kSwishBeta, function.beta);
  pointwise.Finalize();
  DnnDescriptor operation(dnn_kind::kPointwiseOperation);
  operation.SetDescriptor(dnn_attr::kPointwise, pointwise)
      .SetDescriptor(dnn_attr::kPointwiseX, tensors_[operand]);
  if (other.has_value()) operation.SetDescriptor(dnn_attr::kPointwiseB, tensors_[*other]);
  operation.SetDescriptor(dnn_attr::kPointwiseY, tensors_[result]).Finalize();
  operations_.push_back(std::move(operation));
}

void DnnGraph::Multiply(Tensor left, Tensor right, Tensor result) {
  Sign("multiply", {IdOf(left), IdOf(right), IdOf(result)});
  DnnDescriptor matmul(dnn_kind::kMatmul);
  matmul.SetEnum(dnn_attr::kMatmulComputeType, DnnType::kDataType, kFloat32).Finalize();
  operations_.emplace_back(dnn_kind::kMatmulOperation)
      .SetDescriptor(dnn_attr::kMatmulA, tensors_[left])
      .SetDescriptor(dnn_attr::kMatmulB, tensors_[right])
      .SetDescriptor(dnn_attr::kMatmulC, tensors_[result])
      .SetDescriptor(dnn_attr::kMatmul, matmul)
      .Finalize();
}

void DnnGraph::Reduce(DnnReduction reduction, Tensor operand, Tensor result) {
  Sign("reduce", {static_cast<int>(reduction), IdOf(operand), IdOf(result)});
  DnnDescriptor reduce(dnn_kind::kReduction);
  reduce.SetEnum(dnn_attr::kReductionComputeType, DnnType::kDataType, kFloat32)
      .SetEnum(dnn_attr::kReductionOperator, DnnType::kReductionOperator, static_cast<int>(reduction))
      .Finalize();
  operations_.emplace_back(dnn_kind::kReductionOperation)
      .SetDescriptor(dnn_attr::kReduction, reduce)
      .SetDescriptor(dnn_attr::kReductionX, tensors_[operand])
      .SetDescriptor(dnn_attr::kReductionY, tensors_[result])
      .Finalize();
}

void DnnGraph::Resample(DnnResample mode, Tensor source, Tensor result, const std::vector<int64_t>& size,
                        const DnnWindow& window) {
  Sign("resample", {static_cast<int>(mode), IdOf(source), IdOf(result)});
  for (const std::vector<int64_t>* part : {&size, &window.strides, &window.before, &window.after})
    Sign("", *part);
  DnnDescriptor resample(dnn_kind::kResample);
  const int padding = mode == DnnResample::kMax ? kInfinitePadding : kZeroPadding;
  resample.SetEnum(dnn_attr::kResampleMode, DnnType::kResampleMode, static_cast<int>(mode))
      .SetEnum(dnn_attr::kResampleComputeType, DnnType::kDataType, kFloat32)
      .SetEnum(dnn_attr::kResampleNanPropagation, DnnType::kNanPropagation, kPropagateNan)
      .SetEnum(dnn_attr::kResamplePaddingMode, DnnType::kPaddingMode, padding)
      .SetInt(dnn_attr::kResampleSpatialDims, static_cast<int64_t>(size.size()))
      .SetFractions(dnn_attr::kResampleWindow, size)
      .SetFractions(dnn_attr::kResamplePrePaddings, window.before)
      .SetFractions(dnn_attr::kResamplePostPaddings, window.after)
      .SetFractions(dnn_attr::kResampleStrides, window.strides)
      .Finalize();
  operations_.emplace_back(dnn_kind::kResampleForward)
      .SetDescriptor(dnn_attr::kResampleX, tensors_[source])
      .SetDescriptor(dnn_attr::kResampleY, tensors_[result])
      .SetDescriptor(dnn_attr::kResample, resample)
      .Finalize();
}

void DnnGraph::Normalize(Tensor source, Tensor scale, Tensor bias, Tensor epsilon, Tensor result) {
  Sign("normalize", {IdOf(source), IdOf(scale), IdOf(bias), IdOf(epsilon), IdOf(result)});
  operations_.emplace_back(dnn_kind::kNormForward)
      .SetEnum(dnn_attr::kNormMode, DnnType::kNormMode, kLayerNorm)
      .SetEnum(dnn_attr::kNormPhase, DnnType::kNormPhase, kInference)
      .SetDescriptor(dnn_attr::kNormX, tensors_[source])
      .SetDescriptor(dnn_attr::kNormScale, tensors_[scale])
      .SetDescriptor(dnn_attr::kNormBias, tensors_[bias])
      .SetDescriptor(dnn_attr::kNormEpsilon, tensors_[epsilon])
      .SetDescriptor(dnn_attr::kNormY, tensors_[result])
      .Finalize();
}

DnnDescriptor DnnGraph::Finalized(const DnnDevice& device) const {
  DnnDescriptor graph(dnn_kind::kOperationGraph);
  graph.SetDescriptors(dnn_attr::kGraphOperations, operations_);
  if (device.handle != nullptr) graph.SetHandle(dnn_attr::kGraphHandle, device.handle);
  graph.Finalize();
  return graph;
}

std::vector<int64_t> DnnGraph::Ids() const {
  std::vector<int64_t> ids;
  for (const Bound& bound : bound_) ids.push_back(bound.id);
  return ids;
}

std::vector<void*> DnnGraph::Addresses(std::byte* const* buffers) const {
  std::vector<void*> addresses;
  for (const Bound& bound : bound_) {
    if (bound.number != nullptr) {
      addresses.push_back(const_cast<float*>(bound.number));
      continue;
    }
    std::byte* const address = buffers[bound.buffer] + bound.offset;
    if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bound.alignment) != 0) {
      TVM_FFI_THROW(ValueError) << "a tensor is not aligned to " << bound.alignment
                                << " bytes, as its plan needs";
    }
    addresses.push_back(address);
  }
  return addresses;
}

DnnGraph::Tensor DnnGraph::Add(const char* place, const std::vector<int64_t>& dims,
                               const std::vector<int64_t>& strides, DLDataType dtype, int64_t alignment) {
  Sign(place + DTypeName(dtype), {alignment});
  Sign("", dims);
  Sign("", strides);
  DnnDescriptor tensor(dnn_kind::kTensor);
  tensor.SetEnum(dnn_attr::kTensorDataType, DnnType::kDataType, TypeOf(dtype))
      .SetInts(dnn_attr::kTensorDims, dims)
      .SetInts(dnn_attr::kTensorStrides, strides)
      .SetInt(dnn_attr::kTensorId, IdOf(tensors_.size()))
      .SetInt(dnn_attr::kTensorAlignment, alignment);
  tensors_.push_back(std::move(tensor));
  return tensors_.size() - 1;
}

void DnnGraph::Sign(const std::string& name, const std::vector<int64_t>& numbers) {
  signature_ += name;
  for (const int64_t number : numbers) signature_ += "," + std::to_string(number);
  signature_ += ";";
}

}  // namespace collage::cuda
