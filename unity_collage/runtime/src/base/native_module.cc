// The module type of all native backends: named programs that share one blob of constants.
#include <tvm/ffi/extra/module.h>

#include <map>

#include "base/native_function.h"
#include "base/parallel_loops.h"
#include "base/saved_module.h"

namespace collage {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::String;

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

  Bytes SaveToBytes() const final { return Saved(json_, blob_); }

  // "json": the programs; "implementations": what the library chose for each step of each program; "memory":
  // a line for each program of fixed sizes, with its name, the bytes of its packed weights and of its
  // workspace.
  String InspectSource(const String& format) const final {
    if (format == "memory") return HeldMemory();
    if (format != "implementations") return json_;
    std::string lines;
    for (const auto& [name, function] : functions_) lines += name + "\n" + function->Implementations();
    return lines;
  }

 private:
  String HeldMemory() const {
    std::string lines;
    for (const auto& [name, function] : functions_) {
      const auto memory = function->HeldMemory();
      if (!memory.has_value()) continue;
      lines += name + " " + std::to_string(memory->packed) + " " + std::to_string(memory->workspace) + "\n";
    }
    return lines;
  }

  const Backend* backend_;
  const std::string json_;
  const Blob blob_;
  std::map<std::string, std::shared_ptr<NativeFunction>> functions_;
};

}  // namespace

void RegisterBackend(const Backend& backend) {
  const Backend* kept = &backend;
  RegisterKind(backend.kind, [kept](std::string json, Blob blob) {
    ClaimParallelLoops();
    return Module(tvm::ffi::make_object<NativeModule>(kept, std::move(json), std::move(blob)));
  });
}

}  // namespace collage
