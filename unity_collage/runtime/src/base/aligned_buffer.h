// Memory that starts at a cache line.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace collage {

constexpr size_t kAlignment = 64;

constexpr size_t RoundUp(size_t nbytes) { return (nbytes + kAlignment - 1) / kAlignment * kAlignment; }

// The bytes of all buffers that this thread has made, less those that it has freed.
ptrdiff_t MadeByThisThread();
void CountAsMade(ptrdiff_t nbytes);

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // One byte more is allocated, so that a buffer without bytes has an address, too.
  explicit AlignedBuffer(size_t nbytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, RoundUp(nbytes + 1))), Free(nbytes)),
        nbytes_(nbytes) {
    if (data_ == nullptr) throw std::bad_alloc();
    CountAsMade(static_cast<ptrdiff_t>(nbytes));
  }

  std::byte* data() const { return data_.get(); }
  size_t nbytes() const { return nbytes_; }

 private:
  struct Free {
    Free() : nbytes(0) {}
    explicit Free(size_t size) : nbytes(size) {}

    size_t nbytes;

    void operator()(std::byte* data) const {
      std::free(data);
      CountAsMade(-static_cast<ptrdiff_t>(nbytes));
    }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t nbytes_ = 0;
};

// Asks for large pages: memory that is read from end to end then causes fewer TLB misses.
void PreferLargePages(const AlignedBuffer& buffer);

}  // namespace collage
