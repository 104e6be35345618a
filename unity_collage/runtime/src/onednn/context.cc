#include "onednn/context.h"

#include <algorithm>

namespace collage::onednn {
namespace {

size_t LargestScratchpad(const std::vector<CompiledStep>& steps) {
  size_t largest = 0;
  for (const CompiledStep& step : steps) largest = std::max(largest, step.ScratchpadBytes());
  return largest;
}

}  // namespace

Context::Context(const Program& program, const std::vector<CompiledStep>& steps, const std::byte* constants)
    : stream_(MakeStream()), bindings_(program.arguments.size()), bound_(program.arguments.size(), nullptr) {
  const std::vector<int64_t> temporaries = PlaceTemporaries(program);
  arena_ = AlignedBuffer(temporaries.back() + LargestScratchpad(steps));
  for (const CompiledStep& step : steps) {
    std::vector<dnnl_exec_arg_t> args;
    for (const Argument& argument : step.arguments)
      AddArgument(program, argument, constants, temporaries, &args);
    memories_.push_back(MakeMemory(step.scratchpad.get(), arena_.data() + temporaries.back()));
    args.push_back({DNNL_ARG_SCRATCHPAD, memories_.back().get()});
    step_args_.push_back(std::move(args));
  }
}

void Context::AddArgument(const Program& program, const Argument& argument, const std::byte* constants,
                          const std::vector<int64_t>& temporaries, std::vector<dnnl_exec_arg_t>* args) {
  const Buffer& buffer = program.buffers[argument.buffer];
  std::byte* data = nullptr;
  if (argument.packed.data() != nullptr) {
    data = argument.packed.data();
  } else if (buffer.place == Place::kConstant) {
    // Only sources are constants, and a source is only read.
    data = const_cast<std::byte*>(constants) + buffer.where + argument.offset;
  } else if (buffer.place == Place::kTemporary) {
    data = arena_.data() + temporaries[argument.buffer] + argument.offset;
  }
  memories_.push_back(MakeMemory(argument.desc.get(), data));
  args->push_back({argument.id, memories_.back().get()});
  if (data == nullptr) bindings_[buffer.where].push_back({memories_.back().get(), argument.offset});
}

void Context::Bind(std::byte* const* arguments) {
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (bound_[i] == arguments[i]) continue;
    for (const Binding& binding : bindings_[i]) {
      Check(dnnl_memory_set_data_handle(binding.memory, arguments[i] + binding.offset));
    }
    bound_[i] = arguments[i];
  }
}

dnnl_status_t Context::Execute(size_t step, const CompiledStep& compiled) {
  const std::vector<dnnl_exec_arg_t>& args = step_args_[step];
  return dnnl_primitive_execute(compiled.primitive.get(), stream_.get(), static_cast<int>(args.size()),
                                args.data());
}

}  // namespace collage::onednn
