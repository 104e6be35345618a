#include "onednn/compiled_step.h"

#include "onednn/attributes.h"
#include "onednn/descriptors.h"
#include "onednn/primitives.h"

namespace collage::onednn {
namespace {

bool IsPacked(const Program& program, const Step& step, const std::string& name, const View& view) {
  return name == "weights" && PacksWeights(step.primitive) &&
         program.buffers[view.buffer].place == Place::kConstant;
}

Descs DescribeArguments(const Program& program, const Step& step) {
  Descs descs;
  for (const auto& [name, view] : step.args) {
    descs.Add(name, IsPacked(program, step, name, view) ? AnyFormatDesc(view) : StridedDesc(view));
  }
  return descs;
}

Argument PlainArgument(int id, const View& view) {
  return Argument{id, StridedDesc(view), view.buffer, view.offset, nullptr};
}

Argument PackedArgument(const Program& program, const View& view, const std::byte* constants,
                        const_dnnl_primitive_desc_t made) {
  const_dnnl_memory_desc_t chosen = dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 0);
  const std::byte* data = constants + program.buffers[view.buffer].where + view.offset;
  return Argument{DNNL_ARG_WEIGHTS, CopyDesc(chosen), view.buffer, view.offset,
                  PackedWeights(StridedDesc(view).get(), data, chosen)};
}

std::vector<Argument> MakeArguments(const Program& program, const Step& step, const std::byte* constants,
                                    const_dnnl_primitive_desc_t made) {
  std::vector<Argument> arguments;
  for (const auto& [name, view] : step.args) {
    arguments.push_back(IsPacked(program, step, name, view)
                            ? PackedArgument(program, view, constants, made)
                            : PlainArgument(ArgumentId(step.primitive, name), view));
  }
  for (const auto& [id, view] : PostOpArguments(step.post_ops)) arguments.push_back(PlainArgument(id, view));
  return arguments;
}

std::string ImplementationName(const_dnnl_primitive_desc_t made) {
  const char* name = nullptr;
  Check(dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, &name));
  return name;
}

}  // namespace

CompiledStep CompileStep(const Program& program, const Step& step, const std::byte* constants) {
  const PrimitiveAttr attribute = MakeAttribute(step);
  const PrimitiveDesc made = Describe(step, DescribeArguments(program, step), attribute.get());
  return CompiledStep{MakePrimitive(made.get()), MakeArguments(program, step, constants, made.get()),
                      CopyDesc(dnnl_primitive_desc_query_md(made.get(), dnnl_query_scratchpad_md, 0)),
                      ImplementationName(made.get())};
}

}  // namespace collage::onednn
