// Owners of oneDNN's C objects, and its status as an error.
#pragma once

#include <dnnl.h>

#include <memory>
#include <type_traits>

namespace collage::onednn {

// Throws with the library's text for `status` unless it is success.
void Check(dnnl_status_t status);

const char* StatusText(dnnl_status_t status);

template <typename Handle, dnnl_status_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};

template <typename Handle, dnnl_status_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;

using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using MemoryDesc = Owned<dnnl_memory_desc_t, dnnl_memory_desc_destroy>;
using PrimitiveDesc = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using PrimitiveAttr = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOpList = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;

// The engine of the CPU; there is one for the process.
dnnl_engine_t Engine();

Stream MakeStream();
// A memory object over `data`, which may be null if the address is set before use.
Memory MakeMemory(const_dnnl_memory_desc_t desc, void* data);
Primitive MakePrimitive(const_dnnl_primitive_desc_t desc);
MemoryDesc CopyDesc(const_dnnl_memory_desc_t desc);

}  // namespace collage::onednn
