// The module type of all native backends: named programs that share one blob of constants.
#include "base/native_module.h"

#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <map>

#include "base/native_function.h"
#include "base/parallel_loops.h"

namespace collage {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::String;

// The constants of a module, unchanged, for SaveToBytes and for programs that need them as they are.
struct Blob {
  std::shared_ptr<const std::byte> data;
  size_t nbytes;
};

Blob Copied(const char* data, size_t nbytes) {
  const auto buffer = std::make_shared<AlignedBuffer>(nbytes);
  if (nbytes != 0) std::memcpy(buffer->data(), data, nbytes);
  return {{buffer, buffer->data()}, nbytes};
}

class NativeModule final : public tvm::ffi::ModuleObj {
 public:
  NativeModule(const Backend* backend, std::string json, Blob blob)
      : backend_(backend), json_(std::move(json)), blob_(std::move(blob)) {
    for (ProgramTemplate& program : ParseTemplates(json_, static_cast<int64_t>(blob_.nbytes))) {
      auto function = std::make_shared<NativeFunction>(backend_, std::move(program), blob_.data);
      if (!functions_.emplace(function->name(), function).second) {
        TVM_FFI_THROW(ValueError) << "two programs are named '" << function->name() << "'";
      }
    }
  }

  const char* kind() const final { return backend_->kind.c_str(); }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }

  tvm::ffi::Optional<Function> GetFunction(const String& name) final {
    const auto found = functions_.find(name);
    if (found == functions_.end()) return std::nullopt;
    // The function owns its program and shares the blob, so it may outlive the module.
    return Function::FromPacked(
        [function = found->second](tvm::ffi::PackedArgs args, tvm::ffi::Any* /*result*/) {
          function->Call(args);
        });
  }

  // The length of the JSON text as eight bytes, the text, the blob. Spaces behind the text align the blob.
  Bytes SaveToBytes() const final {
    const uint64_t length = RoundUp(sizeof(uint64_t) + json_.size()) - sizeof(uint64_t);
    std::string saved;
    saved.reserve(sizeof(length) + length + blob_.nbytes);
    saved.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(json_);
    saved.append(length - json_.size(), ' ');
    saved.append(reinterpret_cast<const char*>(blob_.data.get()), blob_.nbytes);
    return Bytes(std::move(saved));
  }

  // "json": the programs; "implementations": what the library chose for each step of each program.
  String InspectSource(const String& format) const final {
    if (format != "implementations") return json_;
    std::string lines;
    for (const auto& [name, function] : functions_) lines += name + "\n" + function->Implementations();
    return lines;
  }

 private:
  const Backend* backend_;
  const std::string json_;
  const Blob blob_;
  std::map<std::string, std::shared_ptr<NativeFunction>> functions_;
};

Module Create(const Backend* backend, std::string json, Blob blob) {
  ClaimParallelLoops();
  return Module(tvm::ffi::make_object<NativeModule>(backend, std::move(json), std::move(blob)));
}

std::string JsonIn(const Backend* backend, const char* saved, size_t nbytes) {
  uint64_t length = 0;
  if (nbytes >= sizeof(length)) std::memcpy(&length, saved, sizeof(length));
  if (nbytes < sizeof(length) || length > nbytes - sizeof(length)) {
    TVM_FFI_THROW(ValueError) << "the saved " << backend->kind << " module is cut";
  }
  return std::string(saved + sizeof(length), length);
}

Module Load(const Backend* backend, const Bytes& saved) {
  std::string json = JsonIn(backend, saved.data(), saved.size());
  const size_t begin = sizeof(uint64_t) + json.size();
  return Create(backend, std::move(json), Copied(saved.data() + begin, saved.size() - begin));
}

// The backends by the kind of their modules.
std::map<std::string, const Backend*>& Backends() {
  static std::map<std::string, const Backend*> backends;
  return backends;
}

}  // namespace

tvm::ffi::Optional<Module> LoadNativeModule(const std::string& kind, const LibrarySection& section) {
  const auto found = Backends().find(kind);
  if (found == Backends().end()) return std::nullopt;
  const Backend* backend = found->second;
  std::string json = JsonIn(backend, reinterpret_cast<const char*>(section.data()), section.nbytes());
  const size_t begin = sizeof(uint64_t) + json.size();
  Module made = Create(backend, std::move(json), {section.From(begin), section.nbytes() - begin});
  section.Forget(0, section.nbytes());  // most constants are packed by now, and not read again
  return made;
}

void RegisterBackend(const Backend& backend) {
  const Backend* kept = &backend;
  Backends()[backend.kind] = kept;
  tvm::ffi::reflection::GlobalDef()
      .def((backend.kind + ".create").c_str(),
           [kept](const String& json, const Bytes& blob) {
             return Create(kept, json, Copied(blob.data(), blob.size()));
           })
      .def(("ffi.Module.load_from_bytes." + backend.kind).c_str(),
           [kept](const Bytes& saved) { return Load(kept, saved); });
}

}  // namespace collage
