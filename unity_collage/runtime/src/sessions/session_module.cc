// The module type of inference runtimes: named models that share one blob.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parallel_loops.h"
#include "base/pool.h"
#include "base/saved_module.h"
#include "sessions/bound.h"
#include "sessions/session.h"

namespace collage::sessions {
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

struct OnTheHeap {
  void AllocData(DLTensor* tensor) {
    tensor->data = ::operator new(NumBytes(*tensor), std::align_val_t(kCacheLine));
  }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data, std::align_val_t(kCacheLine)); }

 private:
  static constexpr size_t kCacheLine = 64;
};

Tensor CopyOf(const Allocated& result) {
  Tensor copy =
      Tensor::FromNDAlloc(OnTheHeap(), tvm::ffi::ShapeView(result.shape.data(), result.shape.size()),
                          result.dtype, DLDevice{kDLCPU, 0});
  const int64_t nbytes = NumBytes(*copy.GetDLTensorPtr());
  if (nbytes != 0) std::memcpy(copy.data_ptr(), result.data, nbytes);
  return copy;
}

// For each output the tensor of a call that has its values, or nothing if the runtime writes it. A model may
// return an input, or name a result twice: runtimes write one of two tensors then, or the input.
std::vector<std::optional<size_t>> Repeated(const Model& model) {
  std::vector<std::string> names = model.inputs;
  std::vector<std::optional<size_t>> found;
  for (const std::string& output : model.outputs) {
    const auto same = std::find(names.begin(), names.end(), output);
    found.push_back(same == names.end() ? std::nullopt : std::optional<size_t>(same - names.begin()));
    names.push_back(output);
  }
  return found;
}

// One model as a callable: with its inputs and outputs, or with its inputs alone if it allocates its results.
class SessionFunction {
 public:
  SessionFunction(const InferenceRuntime* runtime, const json::Object& text, const Blob& blob)
      : runtime_(runtime), name_(Get<String>(text, "name")), blob_(blob.data) {
    const int64_t offset = Get<int64_t>(text, "offset"), nbytes = Get<int64_t>(text, "nbytes");
    if (offset < 0 || nbytes < 0 || offset + nbytes > static_cast<int64_t>(blob.nbytes))
      TVM_FFI_THROW(ValueError) << name_ << ": the model is not within the blob";
    model_ = {blob.data.get() + offset, static_cast<size_t>(nbytes), {}, {}, {}, {}, 1};
    for (const String& input : GetAll<String>(text, "inputs")) model_.inputs.push_back(input);
    for (const String& output : GetAll<String>(text, "outputs")) model_.outputs.push_back(output);
    for (const auto& [key, value] : Get<json::Object>(text, "settings")) {
      model_.settings[json::As<String>(key, "the name of a setting")] = json::As<String>(value, "a setting");
    }
    if (json::Find(text, "libraries").has_value()) {  // programs of before have none
      for (const json::Object& library : GetAll<json::Object>(text, "libraries"))
        model_.libraries.push_back(Get<String>(library, "path"));
    }
    repeated_ = Repeated(model_);
  }

  const std::string& name() const { return name_; }

  // Compiles the model for the current number of threads, unless it is compiled for that.
  std::shared_ptr<Session> Opened() {
    std::lock_guard<std::mutex> lock(mutex_);
    const int threads = NumThreads();
    if (session_ == nullptr || model_.threads != threads) {
      session_ = nullptr;  // first, so that weights are not kept twice
      model_.threads = threads;
      session_ = Within(name_, [&] { return std::shared_ptr<Session>(runtime_->open(model_)); });
    }
    return session_;
  }

  void Call(PackedArgs args, Any* result) {
    const size_t inputs = model_.inputs.size(), all = inputs + model_.outputs.size();
    const size_t count = static_cast<size_t>(args.size());
    if (count != inputs && count != all) {
      TVM_FFI_THROW(TypeError) << name_ << " takes " << inputs << " tensors and " << model_.outputs.size()
                               << " results, not " << count;
    }
    std::vector<DLTensor*> tensors;
    for (int i = 0; i < args.size(); ++i) tensors.push_back(DenseTensor(name_, i, args[i]));
    const std::shared_ptr<Session> session = Opened();
    ParkWorkers();  // the runtime has threads of its own
    Within(name_, [&] {
      if (count == all && all != inputs) {
        Write(session.get(), tensors, inputs);
      } else {
        session->Run(tensors, [result](const std::vector<Allocated>& results) {
          Array<Any> copies;
          for (const Allocated& each : results) copies.push_back(CopyOf(each));
          if (copies.size() == 1) {
            *result = copies[0];
          } else {
            *result = copies;
          }
        });
      }
      return 0;
    });
  }

 private:
  void Write(Session* session, const std::vector<DLTensor*>& tensors, size_t inputs) const {
    std::vector<DLTensor*> outputs(tensors.begin() + inputs, tensors.end());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (repeated_[i].has_value()) outputs[i] = nullptr;
    }
    if (std::any_of(outputs.begin(), outputs.end(), [](const DLTensor* each) { return each != nullptr; }))
      session->Run({tensors.begin(), tensors.begin() + inputs}, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!repeated_[i].has_value()) continue;
      const DLTensor &source = *tensors[*repeated_[i]], &target = *tensors[inputs + i];
      const int64_t nbytes = NumBytes(target);
      if (NumBytes(source) != nbytes) TVM_FFI_THROW(ValueError) << "result " << i << " has another size";
      if (nbytes != 0) std::memcpy(DataOf(target), DataOf(source), nbytes);
    }
  }

  const InferenceRuntime* runtime_;
  const std::string name_;
  const std::shared_ptr<const std::byte> blob_;
  std::mutex mutex_;
  Model model_;
  std::vector<std::optional<size_t>> repeated_;
  std::shared_ptr<Session> session_;
};

class SessionModule final : public tvm::ffi::ModuleObj {
 public:
  SessionModule(const InferenceRuntime* runtime, std::string text, Blob blob)
      : runtime_(runtime), json_(std::move(text)), blob_(std::move(blob)) {
    const json::Object root =
        json::As<json::Object>(tvm::ffi::json::Parse(json_), "the description of the models");
    for (const json::Object& model : GetAll<json::Object>(root, "models")) {
      auto function = std::make_shared<SessionFunction>(runtime_, model, blob_);
      if (!functions_.emplace(function->name(), function).second)
        TVM_FFI_THROW(ValueError) << "two models are named '" << function->name() << "'";
    }
  }

  const char* kind() const final { return runtime_->kind.c_str(); }
  int GetPropertyMask() const final { return Module::kBinarySerializable | Module::kRunnable; }

  tvm::ffi::Optional<Function> GetFunction(const String& name) final {
    const auto found = functions_.find(name);
    if (found == functions_.end()) return std::nullopt;
    found->second
        ->Opened();  // what the runtime refuses fails here, and the first call takes no longer than others
    return Function::FromPacked(
        [function = found->second](PackedArgs args, Any* result) { function->Call(args, result); });
  }

  tvm::ffi::Bytes SaveToBytes() const final { return Saved(json_, blob_); }

  String InspectSource(const String& /*format*/) const final { return json_; }

 private:
  const InferenceRuntime* runtime_;
  const std::string json_;
  const Blob blob_;
  std::map<std::string, std::shared_ptr<SessionFunction>> functions_;
};

}  // namespace

void RegisterRuntime(const InferenceRuntime& runtime) {
  const InferenceRuntime* kept = &runtime;
  RegisterKind(runtime.kind, [kept](std::string text, Blob blob) {
    return Module(tvm::ffi::make_object<SessionModule>(kept, std::move(text), std::move(blob)));
  });
  tvm::ffi::reflection::GlobalDef().def((runtime.kind + ".describe").c_str(),
                                        [kept] { return String(kept->describe()); });
}

}  // namespace collage::sessions
