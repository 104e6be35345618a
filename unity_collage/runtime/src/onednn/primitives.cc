#include "onednn/primitives.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <vector>

#include "onednn/descriptors.h"

namespace collage::onednn {
namespace {

constexpr dnnl_prop_kind_t kInference = dnnl_forward_inference;

struct Request {
  const Step& step;
  const Descs& descs;
  const_dnnl_primitive_attr_t attribute;

  const_dnnl_memory_desc_t operator[](const char* name) const { return descs.Need(name); }
  dnnl_alg_kind_t Algorithm(const char* otherwise) const {
    return onednn::Algorithm(step.primitive, step.attrs.TextOr("algorithm", otherwise));
  }
};

size_t SpatialDims(const Request& r) {
  r.descs.Need("src");
  const size_t dims = r.step.args.at("src").dims.size();
  if (dims < 3) TVM_FFI_THROW(ValueError) << "'src' has no spatial dims";
  return dims - 2;
}

// Attributes of a window: each has one number for each spatial dim.
struct Window {
  explicit Window(const Request& r)
      : strides(r.step.attrs.Ints("strides")),
        dilates(r.step.attrs.Ints("dilates")),
        padding_l(r.step.attrs.Ints("padding_l")),
        padding_r(r.step.attrs.Ints("padding_r")) {
    const size_t spatial = SpatialDims(r);
    for (const auto* values : {&strides, &dilates, &padding_l, &padding_r}) {
      if (values->size() != spatial)
        TVM_FFI_THROW(ValueError) << "a window needs " << spatial << " numbers an attribute";
    }
  }

  std::vector<int64_t> strides, dilates, padding_l, padding_r;
};

dnnl_status_t Convolution(const Request& r, dnnl_primitive_desc_t* made) {
  const Window w(r);
  return dnnl_convolution_forward_primitive_desc_create(
      made, Engine(), kInference, r.Algorithm("direct"), r["src"], r["weights"], r.descs.Maybe("bias"),
      r["dst"], w.strides.data(), w.dilates.data(), w.padding_l.data(), w.padding_r.data(), r.attribute);
}

dnnl_status_t Deconvolution(const Request& r, dnnl_primitive_desc_t* made) {
  const Window w(r);
  return dnnl_deconvolution_forward_primitive_desc_create(
      made, Engine(), kInference, r.Algorithm("direct"), r["src"], r["weights"], r.descs.Maybe("bias"),
      r["dst"], w.strides.data(), w.dilates.data(), w.padding_l.data(), w.padding_r.data(), r.attribute);
}

dnnl_status_t Pooling(const Request& r, dnnl_primitive_desc_t* made) {
  const Window w(r);
  const std::vector<int64_t> kernel = r.step.attrs.Ints("kernel");
  if (kernel.size() != w.strides.size())
    TVM_FFI_THROW(ValueError) << "'kernel' needs a number for each spatial dim";
  return dnnl_pooling_forward_primitive_desc_create(
      made, Engine(), kInference, r.Algorithm("max"), r["src"], r["dst"], w.strides.data(), kernel.data(),
      w.dilates.data(), w.padding_l.data(), w.padding_r.data(), r.attribute);
}

dnnl_status_t MatMul(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_matmul_primitive_desc_create(made, Engine(), r["src"], r["weights"], r.descs.Maybe("bias"),
                                           r["dst"], r.attribute);
}

dnnl_status_t InnerProduct(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_inner_product_forward_primitive_desc_create(made, Engine(), kInference, r["src"], r["weights"],
                                                          r.descs.Maybe("bias"), r["dst"], r.attribute);
}

// Scale and shift are used when the step has them.
unsigned NormFlags(const Request& r) {
  unsigned flags = dnnl_normalization_flags_none;
  if (r.descs.Maybe("scale") != nullptr) flags |= dnnl_use_scale;
  if (r.descs.Maybe("shift") != nullptr) flags |= dnnl_use_shift;
  return flags;
}

dnnl_status_t BatchNormalization(const Request& r, dnnl_primitive_desc_t* made) {
  r.descs.Need("mean");
  r.descs.Need("variance");
  return dnnl_batch_normalization_forward_primitive_desc_create(
      made, Engine(), kInference, r["src"], r["dst"], r.step.attrs.Float("epsilon"),
      NormFlags(r) | dnnl_use_global_stats, r.attribute);
}

dnnl_status_t LayerNormalization(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_layer_normalization_forward_primitive_desc_create(
      made, Engine(), kInference, r["src"], r["dst"], nullptr, r.step.attrs.Float("epsilon"), NormFlags(r),
      r.attribute);
}

dnnl_status_t Softmax(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_softmax_forward_primitive_desc_create(made, Engine(), kInference, r.Algorithm("accurate"),
                                                    r["src"], r["dst"],
                                                    static_cast<int>(r.step.attrs.Int("axis")), r.attribute);
}

dnnl_status_t Eltwise(const Request& r, dnnl_primitive_desc_t* made) {
  const Attrs& attrs = r.step.attrs;
  return dnnl_eltwise_forward_primitive_desc_create(
      made, Engine(), kInference, Algorithm("eltwise", attrs.Text("algorithm")), r["src"], r["dst"],
      attrs.FloatOr("alpha", 0), attrs.FloatOr("beta", 0), r.attribute);
}

dnnl_status_t Binary(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_binary_primitive_desc_create(made, Engine(),
                                           Algorithm("binary", r.step.attrs.Text("algorithm")), r["src0"],
                                           r["src1"], r["dst"], r.attribute);
}

dnnl_status_t Concat(const Request& r, dnnl_primitive_desc_t* made) {
  std::vector<const_dnnl_memory_desc_t> sources;
  for (size_t i = 0; i + 1 < r.step.args.size(); ++i)
    sources.push_back(r[("src" + std::to_string(i)).c_str()]);
  return dnnl_concat_primitive_desc_create(made, Engine(), r["dst"], static_cast<int>(sources.size()),
                                           static_cast<int>(r.step.attrs.Int("axis")), sources.data(),
                                           r.attribute);
}

dnnl_status_t Reduction(const Request& r, dnnl_primitive_desc_t* made) {
  const Attrs& attrs = r.step.attrs;
  return dnnl_reduction_primitive_desc_create(made, Engine(), Algorithm("reduction", attrs.Text("algorithm")),
                                              r["src"], r["dst"], attrs.FloatOr("p", 0),
                                              attrs.FloatOr("eps", 0), r.attribute);
}

dnnl_status_t Resampling(const Request& r, dnnl_primitive_desc_t* made) {
  const std::vector<float> factors =
      r.step.attrs.Has("factors") ? r.step.attrs.Floats("factors") : std::vector<float>();
  if (!factors.empty() && factors.size() != SpatialDims(r))
    TVM_FFI_THROW(ValueError) << "'factors' needs a number for each spatial dim";
  return dnnl_resampling_forward_primitive_desc_create(
      made, Engine(), kInference, Algorithm("resampling", r.step.attrs.Text("algorithm")),
      factors.empty() ? nullptr : factors.data(), r["src"], r["dst"], r.attribute);
}

dnnl_status_t Reorder(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_reorder_primitive_desc_create(made, r["src"], Engine(), r["dst"], Engine(), r.attribute);
}

dnnl_status_t Lrn(const Request& r, dnnl_primitive_desc_t* made) {
  const Attrs& attrs = r.step.attrs;
  return dnnl_lrn_forward_primitive_desc_create(
      made, Engine(), kInference, r.Algorithm("across_channels"), r["src"], r["dst"], attrs.Int("local_size"),
      attrs.Float("alpha"), attrs.Float("beta"), attrs.FloatOr("k", 1), r.attribute);
}

dnnl_status_t Prelu(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_prelu_forward_primitive_desc_create(made, Engine(), kInference, r["src"], r["weights"],
                                                  r["dst"], r.attribute);
}

dnnl_status_t Shuffle(const Request& r, dnnl_primitive_desc_t* made) {
  return dnnl_shuffle_forward_primitive_desc_create(made, Engine(), kInference, r["src"], r["dst"],
                                                    static_cast<int>(r.step.attrs.Int("axis")),
                                                    r.step.attrs.Int("group_size"), r.attribute);
}

struct Kind {
  dnnl_status_t (*describe)(const Request& request, dnnl_primitive_desc_t* made);
  bool packs_weights;
};

const Kind& KindOf(const std::string& primitive) {
  static const std::map<std::string, Kind> kinds = {
      {"convolution", {Convolution, true}},
      {"deconvolution", {Deconvolution, true}},
      {"matmul", {MatMul, true}},
      {"inner_product", {InnerProduct, true}},
      {"pooling", {Pooling, false}},
      {"batch_normalization", {BatchNormalization, false}},
      {"layer_normalization", {LayerNormalization, false}},
      {"softmax", {Softmax, false}},
      {"eltwise", {Eltwise, false}},
      {"binary", {Binary, false}},
      {"concat", {Concat, false}},
      {"reduction", {Reduction, false}},
      {"resampling", {Resampling, false}},
      {"reorder", {Reorder, false}},
      {"lrn", {Lrn, false}},
      {"prelu", {Prelu, false}},
      {"shuffle", {Shuffle, false}},
  };
  const auto found = kinds.find(primitive);
  if (found == kinds.end()) TVM_FFI_THROW(ValueError) << "oneDNN has no primitive '" << primitive << "' here";
  return found->second;
}

}  // namespace

const_dnnl_memory_desc_t Descs::Maybe(const std::string& name) const {
  const auto found = descs_.find(name);
  return found == descs_.end() ? nullptr : found->second.get();
}

const_dnnl_memory_desc_t Descs::Need(const std::string& name) const {
  const const_dnnl_memory_desc_t desc = Maybe(name);
  if (desc == nullptr) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  return desc;
}

bool PacksWeights(const std::string& primitive) { return KindOf(primitive).packs_weights; }

PrimitiveDesc Describe(const Step& step, const Descs& descs, const_dnnl_primitive_attr_t attribute) {
  dnnl_primitive_desc_t made = nullptr;
  Check(KindOf(step.primitive).describe(Request{step, descs, attribute}, &made));
  return PrimitiveDesc(made);
}

}  // namespace collage::onednn
