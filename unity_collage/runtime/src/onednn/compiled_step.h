// A step as a primitive with its arguments, packed weights and scratchpad; shared by all calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/program.h"
#include "onednn/handles.h"
#include "onednn/packing.h"

namespace collage::onednn {

struct Argument {
  int id;
  MemoryDesc desc;
  // Where the data is, unless `packed` holds it.
  int buffer;
  int64_t offset;
  std::shared_ptr<const AlignedBuffer> packed;
};

struct CompiledStep {
  Primitive primitive;
  std::vector<Argument> arguments;
  MemoryDesc scratchpad;
  std::string implementation;

  size_t ScratchpadBytes() const { return dnnl_memory_desc_get_size(scratchpad.get()); }
};

CompiledStep CompileStep(const Program& program, const Step& step, const std::byte* constants);

}  // namespace collage::onednn
