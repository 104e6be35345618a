#include "base/saved_module.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <map>

#include "base/aligned_buffer.h"
#include "base/pack_imports.h"

namespace collage {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Module;
using tvm::ffi::String;
using tvm::ffi::Tensor;

Blob Copied(const char* data, size_t nbytes) {
  const auto buffer = std::make_shared<AlignedBuffer>(nbytes);
  if (nbytes != 0) std::memcpy(buffer->data(), data, nbytes);
  return {{buffer, buffer->data()}, nbytes};
}

// The bytes of a tensor, which lives as long as they do.
Blob Held(const Tensor& tensor) {
  if (tensor.numel() == 0) return Copied(nullptr, 0);
  const auto* begin = static_cast<const std::byte*>(tensor.data_ptr());
  if (tensor.dtype() != DLDataType{kDLUInt, 8, 1} || tensor.ndim() != 1 || !tensor.IsContiguous() ||
      tensor.device().device_type != kDLCPU || reinterpret_cast<uintptr_t>(begin) % kAlignment != 0) {
    TVM_FFI_THROW(ValueError) << "a blob is an aligned row of bytes on the host";
  }
  const auto owner = std::make_shared<Tensor>(tensor);
  return {{owner, begin}, static_cast<size_t>(tensor.shape()[0])};
}

std::string JsonIn(const std::string& kind, const char* saved, size_t nbytes) {
  uint64_t length = 0;
  if (nbytes >= sizeof(length)) std::memcpy(&length, saved, sizeof(length));
  if (nbytes < sizeof(length) || length > nbytes - sizeof(length)) {
    TVM_FFI_THROW(ValueError) << "the saved " << kind << " module is truncated";
  }
  return std::string(saved + sizeof(length), length);
}

std::map<std::string, MakeModule>& Kinds() {
  static std::map<std::string, MakeModule> kinds;
  return kinds;
}

}  // namespace

void RegisterKind(const std::string& kind, MakeModule make) {
  Kinds()[kind] = make;
  tvm::ffi::reflection::GlobalDef()
      .def((kind + ".create").c_str(),
           [make](const String& json, tvm::ffi::AnyView blob) {
             if (const auto tensor = blob.as<Tensor>()) return make(json, Held(*tensor));
             const Bytes bytes = blob.cast<Bytes>();
             return make(json, Copied(bytes.data(), bytes.size()));
           })
      .def(("ffi.Module.load_from_bytes." + kind).c_str(), [kind, make](const Bytes& saved) {
        std::string json = JsonIn(kind, saved.data(), saved.size());
        const size_t begin = sizeof(uint64_t) + json.size();
        return make(std::move(json), Copied(saved.data() + begin, saved.size() - begin));
      });
}

Bytes Saved(const std::string& json, const Blob& blob) {
  const uint64_t length = RoundUp(sizeof(uint64_t) + json.size()) - sizeof(uint64_t);
  std::string saved;
  saved.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(json);
  saved.append(length - json.size(), ' ');
  AppendBlob(blob, &saved);
  return Bytes(std::move(saved));
}

tvm::ffi::Optional<Module> LoadSaved(const std::string& kind, const LibrarySection& section,
                                     const std::optional<LibrarySection>& blob) {
  const auto found = Kinds().find(kind);
  if (found == Kinds().end()) return std::nullopt;
  std::string json = JsonIn(kind, reinterpret_cast<const char*>(section.data()), section.nbytes());
  const size_t begin = sizeof(uint64_t) + json.size();
  const Blob constants = blob.has_value() ? Blob{blob->From(0), blob->nbytes()}
                                          : Blob{section.From(begin), section.nbytes() - begin};
  Module made = found->second(std::move(json), constants);
  // Most constants have been packed by now and are not read again.
  const LibrarySection& read = blob.has_value() ? *blob : section;
  read.Forget(0, read.nbytes());
  return made;
}

}  // namespace collage
