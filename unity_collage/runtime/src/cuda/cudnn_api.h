// The functions of cuDNN's backend API that we call, with the numbers of its headers (cuDNN 9).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/runtime_api.h"

namespace collage::cuda {

// cudnnHandle_t and cudnnBackendDescriptor_t: only the library knows what they point to.
using DnnHandle = void*;
using DnnPointer = void*;

// A number of the API with its name in the headers, without the prefix CUDNN_, for error texts.
struct DnnName {
  int number;
  const char* text;
};

// cudnnBackendDescriptorType_t
namespace dnn_kind {
constexpr DnnName kPointwise{0, "POINTWISE"};
constexpr DnnName kConvolution{1, "CONVOLUTION"};
constexpr DnnName kEngine{2, "ENGINE"};
constexpr DnnName kEngineConfig{3, "ENGINECFG"};
constexpr DnnName kHeuristics{4, "ENGINEHEUR"};
constexpr DnnName kPlan{5, "EXECUTION_PLAN"};
constexpr DnnName kKnobChoice{7, "KNOB_CHOICE"};
constexpr DnnName kConvolutionForward{10, "OPERATION_CONVOLUTION_FORWARD"};
constexpr DnnName kPointwiseOperation{13, "OPERATION_POINTWISE"};
constexpr DnnName kOperationGraph{15, "OPERATIONGRAPH"};
constexpr DnnName kVariantPack{16, "VARIANT_PACK"};
constexpr DnnName kTensor{17, "TENSOR"};
constexpr DnnName kMatmul{18, "MATMUL"};
constexpr DnnName kMatmulOperation{19, "OPERATION_MATMUL"};
constexpr DnnName kReduction{21, "REDUCTION"};
constexpr DnnName kReductionOperation{22, "OPERATION_REDUCTION"};
constexpr DnnName kResample{24, "RESAMPLE"};
constexpr DnnName kResampleForward{25, "OPERATION_RESAMPLE_FWD"};
constexpr DnnName kNormForward{29, "OPERATION_NORM_FORWARD"};
constexpr DnnName kDeviceProperties{38, "DEVICEPROP"};
}  // namespace dnn_kind

// cudnnBackendAttributeName_t
namespace dnn_attr {
constexpr DnnName kPointwiseMode{0, "POINTWISE_MODE"};
constexpr DnnName kPointwiseMathPrecision{1, "POINTWISE_MATH_PREC"};
constexpr DnnName kPointwiseNanPropagation{2, "POINTWISE_NAN_PROPAGATION"};
constexpr DnnName kReluLowerClip{3, "POINTWISE_RELU_LOWER_CLIP"};
constexpr DnnName kReluUpperClip{4, "POINTWISE_RELU_UPPER_CLIP"};
constexpr DnnName kReluLowerClipSlope{5, "POINTWISE_RELU_LOWER_CLIP_SLOPE"};
constexpr DnnName kSwishBeta{8, "POINTWISE_SWISH_BETA"};
constexpr DnnName kConvolutionComputeType{100, "CONVOLUTION_COMP_TYPE"};
constexpr DnnName kConvolutionMode{101, "CONVOLUTION_CONV_MODE"};
constexpr DnnName kConvolutionDilations{102, "CONVOLUTION_DILATIONS"};
constexpr DnnName kConvolutionStrides{103, "CONVOLUTION_FILTER_STRIDES"};
constexpr DnnName kConvolutionPostPaddings{104, "CONVOLUTION_POST_PADDINGS"};
constexpr DnnName kConvolutionPrePaddings{105, "CONVOLUTION_PRE_PADDINGS"};
constexpr DnnName kConvolutionSpatialDims{106, "CONVOLUTION_SPATIAL_DIMS"};
constexpr DnnName kHeuristicsMode{200, "ENGINEHEUR_MODE"};
constexpr DnnName kHeuristicsGraph{201, "ENGINEHEUR_OPERATION_GRAPH"};
constexpr DnnName kHeuristicsResults{202, "ENGINEHEUR_RESULTS"};
constexpr DnnName kHeuristicsDevice{204, "ENGINEHEUR_DEVICEPROP"};
constexpr DnnName kConfigEngine{300, "ENGINECFG_ENGINE"};
constexpr DnnName kConfigKnobChoices{302, "ENGINECFG_KNOB_CHOICES"};
constexpr DnnName kPlanHandle{400, "EXECUTION_PLAN_HANDLE"};
constexpr DnnName kPlanConfig{401, "EXECUTION_PLAN_ENGINE_CONFIG"};
constexpr DnnName kPlanWorkspace{402, "EXECUTION_PLAN_WORKSPACE_SIZE"};
constexpr DnnName kPlanDevice{407, "EXECUTION_PLAN_DEVICEPROP"};
constexpr DnnName kKnobType{600, "KNOB_CHOICE_KNOB_TYPE"};
constexpr DnnName kKnobValue{601, "KNOB_CHOICE_KNOB_VALUE"};
constexpr DnnName kForwardAlpha{700, "OPERATION_CONVOLUTION_FORWARD_ALPHA"};
constexpr DnnName kForwardBeta{701, "OPERATION_CONVOLUTION_FORWARD_BETA"};
constexpr DnnName kForwardConvolution{702, "OPERATION_CONVOLUTION_FORWARD_CONV_DESC"};
constexpr DnnName kForwardW{703, "OPERATION_CONVOLUTION_FORWARD_W"};
constexpr DnnName kForwardX{704, "OPERATION_CONVOLUTION_FORWARD_X"};
constexpr DnnName kForwardY{705, "OPERATION_CONVOLUTION_FORWARD_Y"};
constexpr DnnName kPointwise{750, "OPERATION_POINTWISE_PW_DESCRIPTOR"};
constexpr DnnName kPointwiseX{751, "OPERATION_POINTWISE_XDESC"};
constexpr DnnName kPointwiseB{752, "OPERATION_POINTWISE_BDESC"};
constexpr DnnName kPointwiseY{753, "OPERATION_POINTWISE_YDESC"};
constexpr DnnName kGraphHandle{800, "OPERATIONGRAPH_HANDLE"};
constexpr DnnName kGraphOperations{801, "OPERATIONGRAPH_OPS"};
constexpr DnnName kTensorAlignment{900, "TENSOR_BYTE_ALIGNMENT"};
constexpr DnnName kTensorDataType{901, "TENSOR_DATA_TYPE"};
constexpr DnnName kTensorDims{902, "TENSOR_DIMENSIONS"};
constexpr DnnName kTensorStrides{903, "TENSOR_STRIDES"};
constexpr DnnName kTensorId{906, "TENSOR_UNIQUE_ID"};
constexpr DnnName kTensorIsVirtual{907, "TENSOR_IS_VIRTUAL"};
constexpr DnnName kTensorIsByValue{908, "TENSOR_IS_BY_VALUE"};
constexpr DnnName kPackIds{1000, "VARIANT_PACK_UNIQUE_IDS"};
constexpr DnnName kPackPointers{1001, "VARIANT_PACK_DATA_POINTERS"};
constexpr DnnName kPackWorkspace{1003, "VARIANT_PACK_WORKSPACE"};
constexpr DnnName kEngineIndex{1301, "ENGINE_GLOBAL_INDEX"};
constexpr DnnName kEngineNumericalNotes{1303, "ENGINE_NUMERICAL_NOTE"};
constexpr DnnName kMatmulComputeType{1500, "MATMUL_COMP_TYPE"};
constexpr DnnName kMatmulA{1520, "OPERATION_MATMUL_ADESC"};
constexpr DnnName kMatmulB{1521, "OPERATION_MATMUL_BDESC"};
constexpr DnnName kMatmulC{1522, "OPERATION_MATMUL_CDESC"};
constexpr DnnName kMatmul{1523, "OPERATION_MATMUL_DESC"};
constexpr DnnName kReductionOperator{1600, "REDUCTION_OPERATOR"};
constexpr DnnName kReductionComputeType{1601, "REDUCTION_COMP_TYPE"};
constexpr DnnName kReductionX{1610, "OPERATION_REDUCTION_XDESC"};
constexpr DnnName kReductionY{1611, "OPERATION_REDUCTION_YDESC"};
constexpr DnnName kReduction{1612, "OPERATION_REDUCTION_DESC"};
constexpr DnnName kResampleMode{1700, "RESAMPLE_MODE"};
constexpr DnnName kResampleComputeType{1701, "RESAMPLE_COMP_TYPE"};
constexpr DnnName kResampleSpatialDims{1702, "RESAMPLE_SPATIAL_DIMS"};
constexpr DnnName kResamplePostPaddings{1703, "RESAMPLE_POST_PADDINGS"};
constexpr DnnName kResamplePrePaddings{1704, "RESAMPLE_PRE_PADDINGS"};
constexpr DnnName kResampleStrides{1705, "RESAMPLE_STRIDES"};
constexpr DnnName kResampleWindow{1706, "RESAMPLE_WINDOW_DIMS"};
constexpr DnnName kResampleNanPropagation{1707, "RESAMPLE_NAN_PROPAGATION"};
constexpr DnnName kResamplePaddingMode{1708, "RESAMPLE_PADDING_MODE"};
constexpr DnnName kResampleX{1710, "OPERATION_RESAMPLE_FWD_XDESC"};
constexpr DnnName kResampleY{1711, "OPERATION_RESAMPLE_FWD_YDESC"};
constexpr DnnName kResample{1716, "OPERATION_RESAMPLE_FWD_DESC"};
constexpr DnnName kNormMode{2000, "OPERATION_NORM_FWD_MODE"};
constexpr DnnName kNormPhase{2001, "OPERATION_NORM_FWD_PHASE"};
constexpr DnnName kNormX{2002, "OPERATION_NORM_FWD_XDESC"};
constexpr DnnName kNormScale{2005, "OPERATION_NORM_FWD_SCALE_DESC"};
constexpr DnnName kNormBias{2006, "OPERATION_NORM_FWD_BIAS_DESC"};
constexpr DnnName kNormEpsilon{2007, "OPERATION_NORM_FWD_EPSILON_DESC"};
constexpr DnnName kNormY{2013, "OPERATION_NORM_FWD_YDESC"};
constexpr DnnName kDeviceJson{2702, "DEVICEPROP_JSON_REPRESENTATION"};
}  // namespace dnn_attr

// cudnnBackendAttributeType_t
enum class DnnType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kVoidPointer = 6,
  kConvolutionMode = 7,
  kHeuristicsMode = 8,
  kKnobType = 9,
  kNanPropagation = 10,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
  kResampleMode = 21,
  kPaddingMode = 22,
  kChar = 24,
  kFraction = 26,
  kNormMode = 27,
  kNormPhase = 28,
};

struct DnnApi {
  size_t (*get_version)();
  const char* (*get_error_string)(int status);
  void (*get_last_error_string)(char* text, size_t nbytes);
  int (*create)(DnnHandle* handle);
  int (*set_stream)(DnnHandle handle, Stream stream);
  int (*create_descriptor)(int kind, DnnPointer* descriptor);
  int (*destroy_descriptor)(DnnPointer descriptor);
  int (*finalize)(DnnPointer descriptor);
  int (*set_attribute)(DnnPointer descriptor, int name, int type, int64_t count, const void* values);
  int (*get_attribute)(DnnPointer descriptor, int name, int type, int64_t requested, int64_t* count,
                       void* values);
  int (*execute)(DnnHandle handle, DnnPointer plan, DnnPointer variant_pack);
};

// The library, opened with the first call; throws a RuntimeError where it cannot be opened.
const DnnApi& Dnn();

// Throws a RuntimeError "<what>: <text of the status> (<the library's last message>)" unless it is a success.
void CheckDnn(int status, const char* what);

}  // namespace collage::cuda
