#include "kernels/shared_weights.h"

#include <map>
#include <mutex>
#include <utility>

namespace collage::kernels {
namespace {

struct Copies {
  std::mutex mutex;
  std::map<std::pair<const float*, std::string>, std::weak_ptr<const AlignedBuffer>> copies;
};

Copies& KnownCopies() {
  // Never destroyed, since functions may be compiled until the process ends.
  static Copies* known = new Copies;
  return *known;
}

// Forgets copies that nobody holds any more: at their address may be other weights by now.
void ForgetUnused(Copies* known) {
  for (auto at = known->copies.begin(); at != known->copies.end();)
    at = at->second.expired() ? known->copies.erase(at) : std::next(at);
}

}  // namespace

std::shared_ptr<const AlignedBuffer> SharedWeights(const float* plain, const std::string& layout,
                                                   const std::function<AlignedBuffer()>& pack) {
  Copies& known = KnownCopies();
  std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.copies.find({plain, layout});
  if (found != known.copies.end()) {
    if (std::shared_ptr<const AlignedBuffer> data = found->second.lock()) return data;
  }
  ForgetUnused(&known);
  auto made = std::make_shared<const AlignedBuffer>(pack());
  known.copies[{plain, layout}] = made;
  return made;
}

}  // namespace collage::kernels
