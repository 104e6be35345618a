#include "onednn/descriptors.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <map>

#include "base/dtype.h"

namespace collage::onednn {
namespace {

using Algorithms = std::map<std::string, dnnl_alg_kind_t>;

const std::map<std::string, Algorithms>& AllAlgorithms() {
  static const std::map<std::string, Algorithms> all = {
      {"eltwise",
       {{"relu", dnnl_eltwise_relu},
        {"tanh", dnnl_eltwise_tanh},
        {"elu", dnnl_eltwise_elu},
        {"square", dnnl_eltwise_square},
        {"abs", dnnl_eltwise_abs},
        {"sqrt", dnnl_eltwise_sqrt},
        {"linear", dnnl_eltwise_linear},
        {"soft_relu", dnnl_eltwise_soft_relu},
        {"hardsigmoid", dnnl_eltwise_hardsigmoid},
        {"logistic", dnnl_eltwise_logistic},
        {"exp", dnnl_eltwise_exp},
        {"gelu_tanh", dnnl_eltwise_gelu_tanh},
        {"swish", dnnl_eltwise_swish},
        {"log", dnnl_eltwise_log},
        {"clip", dnnl_eltwise_clip},
        {"clip_v2", dnnl_eltwise_clip_v2},
        {"pow", dnnl_eltwise_pow},
        {"gelu_erf", dnnl_eltwise_gelu_erf},
        {"round", dnnl_eltwise_round},
        {"mish", dnnl_eltwise_mish},
        {"hardswish", dnnl_eltwise_hardswish}}},
      {"binary",
       {{"add", dnnl_binary_add},
        {"mul", dnnl_binary_mul},
        {"max", dnnl_binary_max},
        {"min", dnnl_binary_min},
        {"div", dnnl_binary_div},
        {"sub", dnnl_binary_sub},
        {"ge", dnnl_binary_ge},
        {"gt", dnnl_binary_gt},
        {"le", dnnl_binary_le},
        {"lt", dnnl_binary_lt},
        {"eq", dnnl_binary_eq},
        {"ne", dnnl_binary_ne}}},
      {"pooling",
       {{"max", dnnl_pooling_max},
        {"avg_include_padding", dnnl_pooling_avg_include_padding},
        {"avg_exclude_padding", dnnl_pooling_avg_exclude_padding}}},
      {"reduction",
       {{"max", dnnl_reduction_max},
        {"min", dnnl_reduction_min},
        {"sum", dnnl_reduction_sum},
        {"mul", dnnl_reduction_mul},
        {"mean", dnnl_reduction_mean},
        {"norm_lp_max", dnnl_reduction_norm_lp_max},
        {"norm_lp_sum", dnnl_reduction_norm_lp_sum},
        {"norm_lp_power_p_max", dnnl_reduction_norm_lp_power_p_max},
        {"norm_lp_power_p_sum", dnnl_reduction_norm_lp_power_p_sum}}},
      {"resampling", {{"nearest", dnnl_resampling_nearest}, {"linear", dnnl_resampling_linear}}},
      {"softmax", {{"accurate", dnnl_softmax_accurate}, {"log", dnnl_softmax_log}}},
      {"lrn", {{"across_channels", dnnl_lrn_across_channels}, {"within_channel", dnnl_lrn_within_channel}}},
      {"convolution", {{"direct", dnnl_convolution_direct}, {"auto", dnnl_convolution_auto}}},
      {"deconvolution", {{"direct", dnnl_deconvolution_direct}}},
  };
  return all;
}

const std::map<std::string, int>& Arguments() {
  static const std::map<std::string, int> ids = {
      {"src", DNNL_ARG_SRC},
      {"src0", DNNL_ARG_SRC_0},
      {"src1", DNNL_ARG_SRC_1},
      {"weights", DNNL_ARG_WEIGHTS},
      {"bias", DNNL_ARG_BIAS},
      {"dst", DNNL_ARG_DST},
      {"mean", DNNL_ARG_MEAN},
      {"scale", DNNL_ARG_SCALE},
      {"shift", DNNL_ARG_SHIFT},
      {"variance", DNNL_ARG_VARIANCE},
      {"weights_scale", DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS},
  };
  return ids;
}

void FillDims(const std::vector<int64_t>& from, dnnl_dims_t to) {
  if (from.size() > DNNL_MAX_NDIMS) TVM_FFI_THROW(ValueError) << "a view has " << from.size() << " dims";
  std::copy(from.begin(), from.end(), to);
}

}  // namespace

dnnl_data_type_t DataType(DLDataType dtype) {
  static const std::map<std::string, dnnl_data_type_t> types = {
      {"float32", dnnl_f32}, {"float16", dnnl_f16}, {"bfloat16", dnnl_bf16}, {"int32", dnnl_s32},
      {"int8", dnnl_s8},     {"uint8", dnnl_u8},    {"bool", dnnl_u8},
  };
  const auto found = types.find(DTypeName(dtype));
  if (found == types.end()) TVM_FFI_THROW(ValueError) << "oneDNN has no " << DTypeName(dtype);
  return found->second;
}

dnnl_alg_kind_t Algorithm(const std::string& kind, const std::string& name) {
  const Algorithms& algorithms = AllAlgorithms().at(kind);
  const auto found = algorithms.find(name);
  if (found == algorithms.end()) TVM_FFI_THROW(ValueError) << kind << " has no algorithm '" << name << "'";
  return found->second;
}

int ArgumentId(const std::string& primitive, const std::string& name) {
  if (primitive == "concat" && name.rfind("src", 0) == 0)
    return DNNL_ARG_MULTIPLE_SRC + std::stoi(name.substr(3));
  const auto found = Arguments().find(name);
  if (found == Arguments().end()) TVM_FFI_THROW(ValueError) << "unknown argument '" << name << "'";
  return found->second;
}

MemoryDesc StridedDesc(const View& view) {
  dnnl_dims_t dims, strides;
  FillDims(view.dims, dims);
  FillDims(view.strides, strides);
  dnnl_memory_desc_t desc = nullptr;
  const int ndims = static_cast<int>(view.dims.size());
  Check(dnnl_memory_desc_create_with_strides(&desc, ndims, dims, DataType(view.dtype), strides));
  return MemoryDesc(desc);
}

MemoryDesc AnyFormatDesc(const View& view) {
  dnnl_dims_t dims;
  FillDims(view.dims, dims);
  dnnl_memory_desc_t desc = nullptr;
  const int ndims = static_cast<int>(view.dims.size());
  Check(dnnl_memory_desc_create_with_tag(&desc, ndims, dims, DataType(view.dtype), dnnl_format_tag_any));
  return MemoryDesc(desc);
}

}  // namespace collage::onednn
