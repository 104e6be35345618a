// The module type of all native backends: named programs that share one blob of constants.
#include <tvm/ffi/extra/module.h>
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

class NativeModule final : public tvm::ffi::ModuleObj {
 public:
  NativeModule(const Backend* backend, std::string json, const char* blob, size_t blob_nbytes)
      : backend_(backend), json_(std::move(json)), blob_(std::make_shared<AlignedBuffer>(blob_nbytes)) {
    // The blob is kept unchanged, for SaveToBytes and for constants that need no packing.
    if (blob_nbytes != 0) std::memcpy(blob_->data(), blob, blob_nbytes);
    for (Program& program : ParsePrograms(json_, static_cast<int64_t>(blob_nbytes))) {
      auto function = std::make_shared<NativeFunction>(backend_, std::move(program), blob_);
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

  // The length of the JSON text as eight bytes, the text, the blob.
  Bytes SaveToBytes() const final {
    const uint64_t length = json_.size();
    std::string saved(reinterpret_cast<const char*>(&length), sizeof(length));
    saved.append(json_).append(reinterpret_cast<const char*>(blob_->data()), blob_->nbytes());
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
  const std::shared_ptr<AlignedBuffer> blob_;
  std::map<std::string, std::shared_ptr<NativeFunction>> functions_;
};

Module Create(const Backend* backend, std::string json, const char* blob, size_t blob_nbytes) {
  ClaimParallelLoops();
  return Module(tvm::ffi::make_object<NativeModule>(backend, std::move(json), blob, blob_nbytes));
}

Module Load(const Backend* backend, const Bytes& saved) {
  uint64_t length = 0;
  if (saved.size() < sizeof(length))
    TVM_FFI_THROW(ValueError) << "the saved " << backend->kind << " module is cut";
  std::memcpy(&length, saved.data(), sizeof(length));
  if (length > saved.size() - sizeof(length)) {
    TVM_FFI_THROW(ValueError) << "the saved " << backend->kind << " module is cut";
  }
  const char* json = saved.data() + sizeof(length);
  return Create(backend, std::string(json, length), json + length, saved.size() - sizeof(length) - length);
}

}  // namespace

void RegisterBackend(const Backend& backend) {
  const Backend* kept = &backend;
  tvm::ffi::reflection::GlobalDef()
      .def((backend.kind + ".create").c_str(),
           [kept](const String& json, const Bytes& blob) {
             return Create(kept, json, blob.data(), blob.size());
           })
      .def(("ffi.Module.load_from_bytes." + backend.kind).c_str(),
           [kept](const Bytes& saved) { return Load(kept, saved); });
}

}  // namespace collage
