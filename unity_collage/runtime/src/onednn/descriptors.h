// Translates the terms of programs to oneDNN's: dtypes, algorithms, argument ids, memory descriptors.
#pragma once

#include <string>

#include "base/program.h"
#include "onednn/handles.h"

namespace collage::onednn {

dnnl_data_type_t DataType(DLDataType dtype);

// The algorithm `name` of a primitive or post-op kind, for example ("pooling", "max").
dnnl_alg_kind_t Algorithm(const std::string& kind, const std::string& name);

// DNNL_ARG_* of an argument's name.
int ArgumentId(const std::string& primitive, const std::string& name);

// The view with its own strides.
MemoryDesc StridedDesc(const View& view);

// The view's dims, with the format left to the primitive.
MemoryDesc AnyFormatDesc(const View& view);

}  // namespace collage::onednn
