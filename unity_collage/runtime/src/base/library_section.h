// Bytes in a loaded library that are not copied: unity_collage/lowering/imports_object.py writes them there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace collage {

class LibrarySection {
 public:
  // `nbytes` bytes from `offset` behind a symbol that one of the loaded libraries has; throws if none has it.
  LibrarySection(const std::string& symbol, size_t offset, size_t nbytes);

  const std::byte* data() const { return data_.get(); }
  size_t nbytes() const { return nbytes_; }

  // The bytes from `offset` on. The library stays loaded as long as the pointer or a copy of it lives.
  std::shared_ptr<const std::byte> From(size_t offset) const;

  // Gives the memory of bytes [from, to) back to the system: the next read takes them from the file again.
  void Forget(size_t from, size_t to) const;

 private:
  std::shared_ptr<const std::byte> data_;
  size_t nbytes_;
};

}  // namespace collage
