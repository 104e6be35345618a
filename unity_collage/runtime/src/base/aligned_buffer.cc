#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>

namespace collage {
namespace {

thread_local ptrdiff_t made = 0;

}  // namespace

ptrdiff_t MadeByThisThread() { return made; }

void CountAsMade(ptrdiff_t nbytes) { made += nbytes; }

void PreferLargePages(const AlignedBuffer& buffer) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(buffer.data()) + kPage - 1) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(buffer.data() + buffer.nbytes()) / kPage * kPage;
  // Advice only: the result is ignored, since a system may not support it.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace collage
