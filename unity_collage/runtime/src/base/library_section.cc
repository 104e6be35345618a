#include "base/library_section.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/saved_module.h"
#include "base/shared_library.h"

namespace collage {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::String;

constexpr uintptr_t kPage = 4096;
constexpr size_t kCopiedAtOnce = size_t{1} << 20;

// The address of a symbol. The pointer keeps the library loaded.
std::shared_ptr<const std::byte> Find(const std::string& symbol) {
  for (const std::string& name : MappedLibraries()) {  // the one that is being loaded is among the first
    const std::shared_ptr<void> library(dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD), [](void* handle) {
      if (handle != nullptr) dlclose(handle);
    });
    const void* address = library == nullptr ? nullptr : dlsym(library.get(), symbol.c_str());
    if (address != nullptr) return {library, static_cast<const std::byte*>(address)};
  }
  TVM_FFI_THROW(RuntimeError) << "no loaded library has the part " << symbol << " of the program";
}

// Bytes of a module that are elsewhere in its library: blocks of `nbytes` bytes. Along each axis there are
// `counts` blocks, `strides` bytes apart; the last axis varies fastest. Without axes it is one block.
struct Piece {
  size_t offset, nbytes;
  std::vector<int64_t> counts, strides;

  // The offset behind the last byte that is read.
  size_t End() const {
    size_t end = offset + nbytes;
    for (size_t axis = 0; axis < counts.size(); ++axis) end += (counts[axis] - 1) * strides[axis];
    return end;
  }
};

Piece ParsePiece(const json::Object& text) {
  Piece piece{static_cast<size_t>(json::Get<int64_t>(text, "offset")),
              static_cast<size_t>(json::Get<int64_t>(text, "nbytes")), json::GetAll<int64_t>(text, "counts"),
              json::GetAll<int64_t>(text, "strides")};
  if (piece.counts.size() != piece.strides.size() ||
      std::any_of(piece.counts.begin(), piece.counts.end(), [](int64_t count) { return count < 1; }) ||
      std::any_of(piece.strides.begin(), piece.strides.end(), [](int64_t stride) { return stride < 0; })) {
    TVM_FFI_THROW(ValueError) << "a part of a program has invalid counts or strides";
  }
  return piece;
}

void Append(const std::byte* from, const Piece& piece, size_t axis, std::string* to) {
  if (axis == piece.counts.size()) {
    to->append(reinterpret_cast<const char*>(from), piece.nbytes);
    return;
  }
  for (int64_t i = 0; i < piece.counts[axis]; ++i)
    Append(from + i * piece.strides[axis], piece, axis + 1, to);
}

// A module of another kind than ours, made from a copy of its bytes. The library's pages are given back to
// the system as soon as they are copied.
Module LoadCopied(const std::string& kind, size_t nbytes, const std::string& symbol,
                  const std::vector<Piece>& pieces) {
  size_t end = 0;
  for (const Piece& piece : pieces) end = std::max(end, piece.End());
  const LibrarySection section(symbol, 0, end);
  std::string copy;
  copy.reserve(nbytes);
  for (const Piece& piece : pieces) {
    for (size_t from = piece.offset; piece.counts.empty() && from < piece.End(); from += kCopiedAtOnce) {
      const size_t to = std::min(from + kCopiedAtOnce, piece.End());
      copy.append(reinterpret_cast<const char*>(section.data() + from), to - from);
      section.Forget(from, to);
    }
    if (!piece.counts.empty()) Append(section.data() + piece.offset, piece, 0, &copy);
    section.Forget(piece.offset, piece.End());
  }
  if (copy.size() != nbytes) TVM_FFI_THROW(ValueError) << "a part of a program is incomplete";
  return Function::GetGlobalRequired("ffi.Module.load_from_bytes." + kind)(Bytes(std::move(copy)))
      .cast<Module>();
}

Module Load(const Bytes& saved) {
  const json::Value parsed = tvm::ffi::json::Parse(String(saved.data(), saved.size()));
  const auto place = json::As<json::Object>(parsed, "a part of a program");
  const std::string kind = json::Get<String>(place, "kind");
  const std::string symbol = json::Get<String>(place, "symbol");
  const auto nbytes = static_cast<size_t>(json::Get<int64_t>(place, "nbytes"));
  if (json::Find(place, "pieces").has_value()) {
    std::vector<Piece> pieces;
    for (const auto& piece : json::GetAll<json::Object>(place, "pieces")) pieces.push_back(ParsePiece(piece));
    return LoadCopied(kind, nbytes, symbol, pieces);
  }
  const auto offset = static_cast<size_t>(json::Get<int64_t>(place, "offset"));
  std::optional<LibrarySection> blob;
  if (json::Find(place, "blob_nbytes").has_value()) {
    blob.emplace(symbol, 0, json::Get<int64_t>(place, "blob_nbytes"));
  }
  const tvm::ffi::Optional<Module> ours = LoadSaved(kind, LibrarySection(symbol, offset, nbytes), blob);
  return ours.has_value() ? *ours : LoadCopied(kind, nbytes, symbol, {{offset, nbytes, {}, {}}});
}

}  // namespace

LibrarySection::LibrarySection(const std::string& symbol, size_t offset, size_t nbytes) : nbytes_(nbytes) {
  const std::shared_ptr<const std::byte> begin = Find(symbol);
  data_ = {begin, begin.get() + offset};
}

std::shared_ptr<const std::byte> LibrarySection::From(size_t offset) const {
  return {data_, data_.get() + offset};
}

void LibrarySection::Forget(size_t from, size_t to) const {
  const auto address = reinterpret_cast<uintptr_t>(data_.get());
  const uintptr_t begin = (address + from + kPage - 1) / kPage * kPage, end = (address + to) / kPage * kPage;
  // Advice only: the pages stay where a system does not support it.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("ffi.Module.load_from_bytes.collage.section", Load)  // in programs of older versions
      .def("ffi.Module.load_from_bytes.collage.parts", Load);
}

}  // namespace collage
