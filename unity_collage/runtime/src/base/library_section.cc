#include "base/library_section.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

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

// The address of a symbol; it holds the library.
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

// A module of another kind than ours, from a copy of its bytes. What is copied is given back at once.
Module LoadCopied(const std::string& kind, const LibrarySection& section) {
  std::string copy(section.nbytes(), '\0');
  for (size_t from = 0; from < section.nbytes(); from += kCopiedAtOnce) {
    const size_t to = std::min(from + kCopiedAtOnce, section.nbytes());
    std::memcpy(copy.data() + from, section.data() + from, to - from);
    section.Forget(from, to);
  }
  return Function::GetGlobalRequired("ffi.Module.load_from_bytes." + kind)(Bytes(std::move(copy)))
      .cast<Module>();
}

Module Load(const Bytes& saved) {
  const json::Value parsed = tvm::ffi::json::Parse(String(saved.data(), saved.size()));
  const auto place = json::As<json::Object>(parsed, "a part of a program");
  const std::string kind = json::Get<String>(place, "kind");
  const LibrarySection section(json::Get<String>(place, "symbol"), json::Get<int64_t>(place, "offset"),
                               json::Get<int64_t>(place, "nbytes"));
  const tvm::ffi::Optional<Module> ours = LoadSaved(kind, section);
  return ours.has_value() ? *ours : LoadCopied(kind, section);
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
  tvm::ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.collage.section", Load);
}

}  // namespace collage
