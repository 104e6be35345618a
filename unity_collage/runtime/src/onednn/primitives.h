// From a step to oneDNN's primitive descriptor, by a table with a row for each primitive.
#pragma once

#include <map>
#include <string>

#include "base/program.h"
#include "onednn/handles.h"

namespace collage::onednn {

// The memory descriptors of a step's arguments, by name.
class Descs {
 public:
  void Add(const std::string& name, MemoryDesc desc) { descs_[name] = std::move(desc); }
  // Null when the step has no such argument.
  const_dnnl_memory_desc_t Maybe(const std::string& name) const;
  const_dnnl_memory_desc_t Need(const std::string& name) const;

 private:
  std::map<std::string, MemoryDesc> descs_;
};

// Whether the primitive chooses the layout of constant weights.
bool PacksWeights(const std::string& primitive);

// Throws with oneDNN's reason when it has no implementation.
PrimitiveDesc Describe(const Step& step, const Descs& descs, const_dnnl_primitive_attr_t attribute);

}  // namespace collage::onednn
