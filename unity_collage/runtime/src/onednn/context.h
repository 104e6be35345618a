// What each running call has for itself: memory handles and a stream.
#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "base/program.h"
#include "onednn/compiled_step.h"

namespace collage::onednn {

class Context {
 public:
  // `temporaries` are the offsets of temporaries in the workspace. Behind them is the scratchpad, which the
  // steps use one after the other.
  Context(const Program& program, const std::vector<CompiledStep>& steps, const std::byte* constants,
          const std::vector<int64_t>& temporaries);

  // Sets the addresses of this call: arguments are in its tensors, the rest in its workspace.
  void Bind(std::byte* const* arguments, std::byte* workspace);

  dnnl_status_t Execute(size_t step, const CompiledStep& compiled);
  void Wait() { Check(dnnl_stream_wait(stream_.get())); }

 private:
  struct Binding {
    dnnl_memory_t memory;
    int64_t offset;
  };

  void Point(size_t place, std::byte* data);
  void AddArgument(const Program& program, const Argument& argument, const std::byte* constants,
                   const std::vector<int64_t>& temporaries, std::vector<dnnl_exec_arg_t>* args);

  Stream stream_;
  std::vector<Memory> memories_;
  std::vector<std::vector<dnnl_exec_arg_t>> step_args_;
  // By position in the call; the last entry is for the workspace.
  std::vector<std::vector<Binding>> bindings_;
  std::vector<std::byte*> bound_;
};

}  // namespace collage::onednn
