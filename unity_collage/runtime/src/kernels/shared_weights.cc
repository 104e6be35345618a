#include "kernels/shared_weights.h"

#include "base/shared_copies.h"

namespace collage::kernels {

std::shared_ptr<const AlignedBuffer> SharedWeights(const void* plain, const std::string& layout,
                                                   const std::function<AlignedBuffer()>& pack) {
  // Never destroyed, since functions may be compiled until the process ends.
  static auto* known = new SharedCopies<std::string>;
  return known->FindOrPack(
      plain, [&](const std::string& other) { return other == layout; }, [&] { return layout; }, pack);
}

}  // namespace collage::kernels
