#include "onednn/handles.h"

#include <dnnl_debug.h>
#include <tvm/ffi/error.h>

namespace collage::onednn {
namespace {

dnnl_engine_t MakeEngine() {
  dnnl_engine_t engine = nullptr;
  Check(dnnl_engine_create(&engine, dnnl_cpu, 0));
  return engine;
}

}  // namespace

const char* StatusText(dnnl_status_t status) { return dnnl_status2str(status); }

void Check(dnnl_status_t status) {
  if (status != dnnl_success) TVM_FFI_THROW(RuntimeError) << "oneDNN says " << StatusText(status);
}

dnnl_engine_t Engine() {
  static const Owned<dnnl_engine_t, dnnl_engine_destroy> engine(MakeEngine());
  return engine.get();
}

Stream MakeStream() {
  dnnl_stream_t stream = nullptr;
  Check(dnnl_stream_create(&stream, Engine(), dnnl_stream_default_flags));
  return Stream(stream);
}

Memory MakeMemory(const_dnnl_memory_desc_t desc, void* data) {
  dnnl_memory_t memory = nullptr;
  Check(dnnl_memory_create(&memory, desc, Engine(), data));
  return Memory(memory);
}

Primitive MakePrimitive(const_dnnl_primitive_desc_t desc) {
  dnnl_primitive_t primitive = nullptr;
  Check(dnnl_primitive_create(&primitive, desc));
  return Primitive(primitive);
}

MemoryDesc CopyDesc(const_dnnl_memory_desc_t desc) {
  dnnl_memory_desc_t copy = nullptr;
  Check(dnnl_memory_desc_clone(&copy, desc));
  return MemoryDesc(copy);
}

}  // namespace collage::onednn
