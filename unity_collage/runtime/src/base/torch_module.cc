// Kernels that PyTorch computes: each is a text, which a function of Python reads, and constants.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <map>
#include <mutex>

#include "base/borrowed.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/saved_module.h"

namespace collage {
namespace {

using json::Get;
using json::GetAll;
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::PackedArgs;
using tvm::ffi::String;
using tvm::ffi::Tensor;

constexpr char kKind[] = "collage.torch";

// Makes the function of a kernel of its text and constants; unity_collage/runtime/torch_kernels.py registers
// it.
constexpr char kMaker[] = "unity_collage.torch_kernel";

Tensor ConstantIn(const Blob& blob, const json::Object& text) {
  const int64_t offset = Get<int64_t>(text, "offset"), nbytes = Get<int64_t>(text, "nbytes");
  const std::vector<int64_t> shape = GetAll<int64_t>(text, "shape");
  const DLDataType dtype = ParseDType(Get<String>(text, "dtype"));
  int64_t needed = ItemSize(dtype);
  for (const int64_t extent : shape) needed *= extent;
  if (offset < 0 || nbytes != needed || offset + nbytes > static_cast<int64_t>(blob.nbytes))
    TVM_FFI_THROW(ValueError) << "a constant is not within the blob, or has another size";
  return Borrowed({blob.data, blob.data.get() + offset}, {shape.data(), shape.size()}, dtype);
}

class TorchKernel {
 public:
  TorchKernel(const json::Object& text, const Blob& blob)
      : name_(Get<String>(text, "name")), call_(Get<String>(text, "call")) {
    for (const json::Object& constant : GetAll<json::Object>(text, "constants"))
      constants_.push_back(ConstantIn(blob, constant));
  }

  const std::string& name() const { return name_; }

  void Call(PackedArgs args, Any* result) {
    // Python gets objects: it could not keep a pointer to a tensor.
    for (int i = 0; i < args.size(); ++i) {
      if (!args[i].try_cast<Tensor>().has_value())
        TVM_FFI_THROW(TypeError) << name_ << ": argument " << i << " is not a tensor";
    }
    Made().CallPacked(args, result);
  }

 private:
  const Function& Made() {
    std::call_once(once_, [this] {
      const auto make = Function::GetGlobal(kMaker);
      if (!make.has_value())
        TVM_FFI_THROW(RuntimeError) << "Cannot find function " << kMaker << ": PyTorch computes " << name_
                                    << ", in a process of Python that imports unity_collage.runtime";
      made_ = (*make)(call_, constants_).cast<Function>();
    });
    return *made_;
  }

  const std::string name_;
  const String call_;
  Array<Tensor> constants_;
  std::once_flag once_;
  std::optional<Function> made_;
};

class TorchModule final : public tvm::ffi::ModuleObj {
 public:
  TorchModule(std::string text, Blob blob) : json_(std::move(text)), blob_(std::move(blob)) {
    const auto root = json::As<json::Object>(tvm::ffi::json::Parse(json_), "the description of the kernels");
    for (const json::Object& kernel : GetAll<json::Object>(root, "kernels")) {
      auto made = std::make_shared<TorchKernel>(kernel, blob_);
      if (!kernels_.emplace(made->name(), made).second)
        TVM_FFI_THROW(ValueError) << "two kernels are named '" << made->name() << "'";
    }
  }

  const char* kind() const final { return kKind; }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }

  tvm::ffi::Optional<Function> GetFunction(const String& name) final {
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) return std::nullopt;
    return Function::FromPacked(
        [kernel = found->second](PackedArgs args, Any* result) { kernel->Call(args, result); });
  }

  tvm::ffi::Bytes SaveToBytes() const final { return Saved(json_, blob_); }

  String InspectSource(const String& /*format*/) const final { return json_; }

 private:
  const std::string json_;
  const Blob blob_;
  std::map<std::string, std::shared_ptr<TorchKernel>> kernels_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  RegisterKind(kKind, [](std::string text, Blob blob) {
    return Module(tvm::ffi::make_object<TorchModule>(std::move(text), std::move(blob)));
  });
}

}  // namespace
}  // namespace collage
