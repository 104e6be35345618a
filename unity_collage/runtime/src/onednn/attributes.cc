#include "onednn/attributes.h"

#include <tvm/ffi/error.h>

#include "onednn/descriptors.h"

namespace collage::onednn {
namespace {

PostOpList NewPostOps() {
  dnnl_post_ops_t list = nullptr;
  Check(dnnl_post_ops_create(&list));
  return PostOpList(list);
}

dnnl_status_t AppendEltwise(const PostOp& op, dnnl_post_ops_t list) {
  return dnnl_post_ops_append_eltwise(list, Algorithm("eltwise", op.attrs.Text("algorithm")),
                                      op.attrs.FloatOr("alpha", 0), op.attrs.FloatOr("beta", 0));
}

dnnl_status_t AppendBinary(const PostOp& op, dnnl_post_ops_t list) {
  if (!op.arg.has_value()) TVM_FFI_THROW(ValueError) << "a binary post-op needs 'arg'";
  return dnnl_post_ops_append_binary(list, Algorithm("binary", op.attrs.Text("algorithm")),
                                     StridedDesc(*op.arg).get());
}

dnnl_status_t AppendSum(const PostOp& op, dnnl_post_ops_t list) {
  return dnnl_post_ops_append_sum(list, op.attrs.FloatOr("scale", 1), 0, dnnl_data_type_undef);
}

void Append(const PostOp& op, dnnl_post_ops_t list) {
  if (op.kind == "eltwise") return Check(AppendEltwise(op, list));
  if (op.kind == "binary") return Check(AppendBinary(op, list));
  if (op.kind == "sum") return Check(AppendSum(op, list));
  TVM_FFI_THROW(ValueError) << "unknown post-op '" << op.kind << "'";
}

// The axes of the weights that are output channels, as bits.
int ChannelMask(const Step& step) {
  const size_t rank = step.args.at("weights").dims.size();
  if (step.primitive == "matmul") return 1 << (rank - 1);
  const bool is_grouped = rank > step.args.at("src").dims.size();
  return is_grouped ? 0b11 : 0b1;
}

}  // namespace

PrimitiveAttr MakeAttribute(const Step& step) {
  dnnl_primitive_attr_t raw = nullptr;
  Check(dnnl_primitive_attr_create(&raw));
  PrimitiveAttr attribute(raw);
  Check(dnnl_primitive_attr_set_scratchpad_mode(raw, dnnl_scratchpad_mode_user));
  const PostOpList list = NewPostOps();
  for (const PostOp& op : step.post_ops) Append(op, list.get());
  Check(dnnl_primitive_attr_set_post_ops(raw, list.get()));
  if (step.args.count(kWeightsScale))
    Check(dnnl_primitive_attr_set_scales_mask(raw, DNNL_ARG_WEIGHTS, ChannelMask(step)));
  return attribute;
}

std::vector<std::pair<int, View>> PostOpArguments(const std::vector<PostOp>& post_ops) {
  std::vector<std::pair<int, View>> arguments;
  for (size_t i = 0; i < post_ops.size(); ++i) {
    const int id = DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1;
    if (post_ops[i].arg.has_value()) arguments.emplace_back(id, *post_ops[i].arg);
  }
  return arguments;
}

}  // namespace collage::onednn
