#include "onednn/packing.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

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

// A packed copy that some primitive may still hold.
struct Copy {
  MemoryDesc plain, packed;
  std::weak_ptr<const AlignedBuffer> data;
};

struct Copies {
  std::mutex mutex;
  // By the address of the weights.
  std::map<const std::byte*, std::vector<Copy>> copies;
};

Copies& KnownCopies() {
  // Never destroyed, since functions may be compiled until the process ends.
  static Copies* known = new Copies;
  return *known;
}

// Forgets copies that nobody holds any more: at their address may be other weights by now.
void ForgetUnused(Copies* known) {
  for (auto at = known->copies.begin(); at != known->copies.end();) {
    std::vector<Copy>& copies = at->second;
    copies.erase(
        std::remove_if(copies.begin(), copies.end(), [](const Copy& copy) { return copy.data.expired(); }),
        copies.end());
    at = copies.empty() ? known->copies.erase(at) : std::next(at);
  }
}

}  // namespace

std::shared_ptr<const AlignedBuffer> PackedWeights(const_dnnl_memory_desc_t plain,
                                                   const std::byte* plain_data,
                                                   const_dnnl_memory_desc_t packed) {
  if (dnnl_memory_desc_equal(plain, packed) != 0) return nullptr;
  Copies& known = KnownCopies();
  std::lock_guard<std::mutex> lock(known.mutex);
  for (const Copy& copy : known.copies[plain_data]) {
    if (dnnl_memory_desc_equal(copy.plain.get(), plain) == 0 ||
        dnnl_memory_desc_equal(copy.packed.get(), packed) == 0) {
      continue;
    }
    if (std::shared_ptr<const AlignedBuffer> data = copy.data.lock()) return data;
  }
  ForgetUnused(&known);
  const auto made = std::make_shared<const AlignedBuffer>(Reordered(plain, plain_data, packed));
  known.copies[plain_data].push_back({CopyDesc(plain), CopyDesc(packed), made});
  return made;
}

}  // namespace collage::onednn
