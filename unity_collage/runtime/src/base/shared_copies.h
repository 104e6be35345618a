// Packed copies of constants, each made once for all programs that read it the same way.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"

namespace collage {

// Copies by the address of the constant and by `Layout`, which is all else that a copy depends on. A copy is
// found as long as some program holds it, and a program that holds it holds the constant too.
template <typename Layout>
class SharedCopies {
 public:
  // The copy with a layout for which same() is true. If there is none, pack() makes it and layout() its
  // layout.
  template <typename Same, typename MakeLayout, typename Pack>
  std::shared_ptr<const AlignedBuffer> FindOrPack(const void* constant, const Same& same,
                                                  const MakeLayout& layout, const Pack& pack) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = copies_.find(constant);
    if (found != copies_.end()) {
      for (const Copy& copy : found->second) {
        if (!same(copy.layout)) continue;
        if (std::shared_ptr<const AlignedBuffer> data = copy.data.lock()) return data;
      }
    }
    ForgetUnused();
    auto made = std::make_shared<const AlignedBuffer>(pack());
    copies_[constant].push_back({layout(), made});
    return made;
  }

 private:
  struct Copy {
    Layout layout;
    std::weak_ptr<const AlignedBuffer> data;
  };

  // Forgets copies that no program holds any more: other weights may be at the address of their constant by
  // now.
  void ForgetUnused() {
    for (auto at = copies_.begin(); at != copies_.end();) {
      std::vector<Copy>& copies = at->second;
      copies.erase(
          std::remove_if(copies.begin(), copies.end(), [](const Copy& copy) { return copy.data.expired(); }),
          copies.end());
      at = copies.empty() ? copies_.erase(at) : std::next(at);
    }
  }

  std::mutex mutex_;
  std::map<const void*, std::vector<Copy>> copies_;
};

}  // namespace collage
