#include "onednn/packing.h"

#include <array>

#include "base/shared_copies.h"

namespace collage::onednn {
namespace {

Primitive MakeReorder(const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to) {
  dnnl_primitive_desc_t desc = nullptr;
  Check(dnnl_reorder_primitive_desc_create(&desc, from, Engine(), to, Engine(), nullptr));
  return MakePrimitive(PrimitiveDesc(desc).get());
}

AlignedBuffer Reordered(const_dnnl_memory_desc_t plain, const std::byte* plain_data,
                        const_dnnl_memory_desc_t packed) {
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

// How weights are stored before and after packing.
struct Layouts {
  MemoryDesc plain, packed;
};

SharedCopies<Layouts>& KnownCopies() {
  // Never destroyed, since functions may be compiled until the process ends.
  static auto* known = new SharedCopies<Layouts>;
  return *known;
}

}  // namespace

std::shared_ptr<const AlignedBuffer> PackedWeights(const_dnnl_memory_desc_t plain,
                                                   const std::byte* plain_data,
                                                   const_dnnl_memory_desc_t packed) {
  if (dnnl_memory_desc_equal(plain, packed) != 0) return nullptr;
  return KnownCopies().FindOrPack(
      plain_data,
      [&](const Layouts& known) {
        return dnnl_memory_desc_equal(known.plain.get(), plain) != 0 &&
               dnnl_memory_desc_equal(known.packed.get(), packed) != 0;
      },
      [&] { return Layouts{CopyDesc(plain), CopyDesc(packed)}; },
      [&] { return Reordered(plain, plain_data, packed); });
}

}  // namespace collage::onednn
