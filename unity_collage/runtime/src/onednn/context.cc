#include "onednn/context.h"

namespace collage::onednn {

Context::Context(const Program& program, const std::vector<CompiledStep>& steps, const std::byte* constants,
                 const std::vector<int64_t>& temporaries)
    : stream_(MakeStream()),
      bindings_(program.arguments.size() + 1),
      bound_(program.arguments.size() + 1, nullptr) {
  for (const CompiledStep& step : steps) {
    std::vector<dnnl_exec_arg_t> args;
    for (const Argument& argument : step.arguments)
      AddArgument(program, argument, constants, temporaries, &args);
    memories_.push_back(MakeMemory(step.scratchpad.get(), nullptr));
    args.push_back({DNNL_ARG_SCRATCHPAD, memories_.back().get()});
    bindings_.back().push_back({memories_.back().get(), temporaries.back()});
    step_args_.push_back(std::move(args));
  }
}

void Context::AddArgument(const Program& program, const Argument& argument, const std::byte* constants,
                          const std::vector<int64_t>& temporaries, std::vector<dnnl_exec_arg_t>* args) {
  const Buffer& buffer = program.buffers[argument.buffer];
  std::byte* data = nullptr;
  if (argument.packed != nullptr) {
    data = argument.packed->data();  // weights are only read
  } else if (buffer.place == Place::kConstant) {
    // Only sources are constants, and a source is only read.
    data = const_cast<std::byte*>(constants) + buffer.where + argument.offset;
  }
  memories_.push_back(MakeMemory(argument.desc.get(), data));
  args->push_back({argument.id, memories_.back().get()});
  if (data != nullptr) return;
  if (buffer.place == Place::kTemporary) {
    bindings_.back().push_back({memories_.back().get(), temporaries[argument.buffer] + argument.offset});
  } else {
    bindings_[buffer.where].push_back({memories_.back().get(), argument.offset});
  }
}

void Context::Bind(std::byte* const* arguments, std::byte* workspace) {
  const size_t count = bindings_.size() - 1;
  for (size_t i = 0; i < count; ++i) Point(i, arguments[i]);
  Point(count, workspace);
}

void Context::Point(size_t place, std::byte* data) {
  if (bound_[place] == data) return;
  for (const Binding& binding : bindings_[place]) {
    Check(dnnl_memory_set_data_handle(binding.memory, data + binding.offset));
  }
  bound_[place] = data;
}

dnnl_status_t Context::Execute(size_t step, const CompiledStep& compiled) {
  const std::vector<dnnl_exec_arg_t>& args = step_args_[step];
  return dnnl_primitive_execute(compiled.primitive.get(), stream_.get(), static_cast<int>(args.size()),
                                args.data());
}

}  // namespace collage::onednn
