#include "base/library_section.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/borrowed.h"
#include "base/json.h"
#include "base/saved_module.h"
#include "base/shared_library.h"
#include "base/vm_constants.h"

namespace collage {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::ModuleObj;
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

// Copies a piece to `to`; the result is the end of the copy.
std::byte* Copy(const std::byte* from, const Piece& piece, size_t axis, std::byte* to) {
  if (axis == piece.counts.size()) {
    std::memcpy(to, from, piece.nbytes);
    return to + piece.nbytes;
  }
  for (int64_t i = 0; i < piece.counts[axis]; ++i)
    to = Copy(from + i * piece.strides[axis], piece, axis + 1, to);
  return to;
}

// Copy of one block. The library's pages are given back to the system as soon as they are copied.
void CopyBlock(const LibrarySection& section, size_t offset, size_t nbytes, std::byte* to) {
  for (size_t begin = 0; begin < nbytes; begin += kCopiedAtOnce) {
    const size_t end = std::min(begin + kCopiedAtOnce, nbytes);
    std::memcpy(to + begin, section.data() + offset + begin, end - begin);
    section.Forget(offset + begin, offset + end);
  }
}

// A module of another kind than ours, made from a copy of its bytes.
Module LoadCopied(const std::string& kind, const LibrarySection& section) {
  std::string copy(section.nbytes(), '\0');
  CopyBlock(section, 0, copy.size(), reinterpret_cast<std::byte*>(copy.data()));
  section.Forget(0, copy.size());
  return Function::GetGlobalRequired("ffi.Module.load_from_bytes." + kind)(Bytes(std::move(copy)))
      .cast<Module>();
}

// A constant of an executable.
struct Content {
  int64_t place;  // among the constants
  Piece piece;
  DLDataType dtype;
  std::vector<int64_t> shape;

  size_t nbytes() const {
    size_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count * (dtype.bits / 8) * dtype.lanes;
  }
};

Content ParseContent(const json::Object& text) {
  const auto type = json::GetAll<int64_t>(text, "dtype");
  if (type.size() != 3) TVM_FFI_THROW(ValueError) << "a part of a program has no type";
  Content content{json::Get<int64_t>(text, "place"), ParsePiece(text),
                  DLDataType{static_cast<uint8_t>(type[0]), static_cast<uint8_t>(type[1]),
                             static_cast<uint16_t>(type[2])},
                  json::GetAll<int64_t>(text, "shape")};
  size_t nbytes = content.piece.nbytes;
  for (const int64_t count : content.piece.counts) nbytes *= count;
  if (nbytes != content.nbytes()) TVM_FFI_THROW(ValueError) << "a part of a program is incomplete";
  return content;
}

// A program of TVM's virtual machine that was saved without its large constants, which are copied once. All
// are in one piece of memory, with large pages: programs read most of it in every run.
Module LoadExecutable(const std::string& kind, const std::string& symbol, const LibrarySection& saved,
                      const std::vector<Content>& contents) {
  const Module executable = LoadCopied(kind, saved);
  std::vector<Any>* constants = ConstantsOf(const_cast<ModuleObj*>(executable.operator->()));
  if (constants == nullptr) TVM_FFI_THROW(RuntimeError) << "it was saved with another version of TVM";
  size_t nbytes = 0, end = 0;
  for (const Content& content : contents) {
    nbytes += RoundUp(content.nbytes());
    end = std::max(end, content.piece.End());
  }
  const LibrarySection section(symbol, 0, end);
  const auto buffer = std::make_shared<AlignedBuffer>(nbytes);
  PreferLargePages(*buffer);
  std::byte* to = buffer->data();
  for (const Content& content : contents) {
    const Piece& piece = content.piece;
    if (piece.counts.empty()) {
      CopyBlock(section, piece.offset, piece.nbytes, to);
    } else {
      Copy(section.data() + piece.offset, piece, 0, to);
    }
    section.Forget(piece.offset, piece.End());
    constants->at(content.place) =
        Borrowed({buffer, to}, {content.shape.data(), content.shape.size()}, content.dtype);
    to += RoundUp(content.nbytes());
  }
  return executable;
}

Module Load(const Bytes& saved) {
  const json::Value parsed = tvm::ffi::json::Parse(String(saved.data(), saved.size()));
  const auto place = json::As<json::Object>(parsed, "a part of a program");
  const std::string kind = json::Get<String>(place, "kind");
  const std::string symbol = json::Get<String>(place, "symbol");
  const auto nbytes = static_cast<size_t>(json::Get<int64_t>(place, "nbytes"));
  const LibrarySection own(symbol, json::Get<int64_t>(place, "offset"), nbytes);
  if (json::Find(place, "contents").has_value()) {
    std::vector<Content> contents;
    for (const auto& text : json::GetAll<json::Object>(place, "contents"))
      contents.push_back(ParseContent(text));
    return LoadExecutable(kind, symbol, own, contents);
  }
  std::optional<LibrarySection> blob;
  if (json::Find(place, "blob_nbytes").has_value()) {
    blob.emplace(symbol, 0, json::Get<int64_t>(place, "blob_nbytes"));
  }
  const tvm::ffi::Optional<Module> ours = LoadSaved(kind, own, blob);
  return ours.has_value() ? *ours : LoadCopied(kind, own);
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
  tvm::ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.collage.parts", Load);
}

}  // namespace collage
