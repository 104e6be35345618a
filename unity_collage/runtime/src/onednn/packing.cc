#include "onednn/packing.h"

#include <array>

namespace collage::onednn {
namespace {

Primitive MakeReorder(const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to) {
  dnnl_primitive_desc_t desc = nullptr;
  Check(dnnl_reorder_primitive_desc_create(&desc, from, Engine(), to, Engine(), nullptr));
  return MakePrimitive(PrimitiveDesc(desc).get());
}

}  // namespace

AlignedBuffer PackWeights(const_dnnl_memory_desc_t plain, const std::byte* plain_data,
                          const_dnnl_memory_desc_t packed) {
  if (dnnl_memory_desc_equal(plain, packed) != 0) return AlignedBuffer();
  AlignedBuffer storage(dnnl_memory_desc_get_size(packed));
  // A source is only read, although the C interface takes it without const.
  const Memory from = MakeMemory(plain, const_cast<std::byte*>(plain_data));
  const Memory to = MakeMemory(packed, storage.data());
  const std::array<dnnl_exec_arg_t, 2> args = {{{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}}};
  const Stream stream = MakeStream();
  Check(dnnl_primitive_execute(MakeReorder(plain, packed).get(), stream.get(), static_cast<int>(args.size()),
                               args.data()));
  Check(dnnl_stream_wait(stream.get()));
  return storage;
}

}  // namespace collage::onednn
