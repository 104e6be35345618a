// Sessions of ONNX Runtime: kind "collage.onnxruntime".
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/arguments.h"
#include "base/context_pool.h"
#include "base/dtype.h"
#include "base/shared_library.h"
#include "sessions/bound.h"
#include "sessions/onnxruntime_api.h"
#include "sessions/session.h"

namespace collage::sessions {
namespace {

// The types of ONNX Runtime by their numbers, which begin at 1. Strings and complex numbers have no
// counterpart here.
constexpr std::array<DLDataType, 17> kTypes = {{
    {},
    {kDLFloat, 32, 1},
    {kDLUInt, 8, 1},
    {kDLInt, 8, 1},
    {kDLUInt, 16, 1},
    {kDLInt, 16, 1},
    {kDLInt, 32, 1},
    {kDLInt, 64, 1},
    {},
    {kDLBool, 8, 1},
    {kDLFloat, 16, 1},
    {kDLFloat, 64, 1},
    {kDLUInt, 32, 1},
    {kDLUInt, 64, 1},
    {},
    {},
    {kDLBfloat, 16, 1},
}};

int TypeOf(DLDataType dtype) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].bits != 0 && SameDType(kTypes[i], dtype)) return static_cast<int>(i);
  }
  TVM_FFI_THROW(TypeError) << "ONNX Runtime does not take " << DTypeName(dtype);
}

// The interface, opened when it is first needed.
class Api {
 public:
  Api() {
    const SharedLibrary library = SharedLibrary::Mapped("libonnxruntime.so");
    const ort::ApiBase* (*get_base)() = nullptr;
    library.Find("OrtGetApiBase", &get_base);
    base_ = get_base();
    table_ = base_->get_api(ort::kApiVersion);
    if (table_ == nullptr)
      TVM_FFI_THROW(RuntimeError) << "ONNX Runtime " << version() << " is older than 1.17";
    Check(Call<int, const char*, ort::Env**>(ort::kCreateEnv, ort::kLogErrors, "unity_collage", &env_));
    Check(Call<int, int, ort::MemoryInfo**>(ort::kCreateCpuMemoryInfo, ort::kArenaAllocator,
                                            ort::kDefaultMemory, &memory_));
  }

  std::string version() const { return base_->get_version(); }
  const ort::Env* env() const { return env_; }
  const ort::MemoryInfo* memory() const { return memory_; }

  // Calls a function that returns a status; throws with its reason if it failed.
  template <typename... Args>
  void Do(ort::Position position, Args... args) const {
    Check(Call<Args...>(position, args...));
  }

  // Calls a function that releases an object.
  template <typename T>
  void Release(ort::Position position, T* object) const {
    if (object != nullptr) reinterpret_cast<void (*)(T*)>(const_cast<void*>(table_[position]))(object);
  }

 private:
  template <typename... Args>
  ort::Status* Call(ort::Position position, Args... args) const {
    return reinterpret_cast<ort::Status* (*)(Args...)>(const_cast<void*>(table_[position]))(args...);
  }

  void Check(ort::Status* status) const {
    if (status == nullptr) return;
    const auto message = reinterpret_cast<const char* (*)(const ort::Status*)>(
        const_cast<void*>(table_[ort::kGetErrorMessage]));
    const std::string reason = message(status);
    Release(ort::kReleaseStatus, status);
    TVM_FFI_THROW(RuntimeError) << "ONNX Runtime: " << reason;
  }

  const ort::ApiBase* base_ = nullptr;
  const void* const* table_ = nullptr;
  ort::Env* env_ = nullptr;  // never released: its threads may outlive the library's static objects
  ort::MemoryInfo* memory_ = nullptr;
};

const Api& TheApi() {
  static const Api* api = new Api;
  return *api;
}

template <typename T, ort::Position kRelease>
struct Releases {
  void operator()(T* object) const { TheApi().Release(kRelease, object); }
};
using Options =
    std::unique_ptr<ort::SessionOptions, Releases<ort::SessionOptions, ort::kReleaseSessionOptions>>;
using OwnedSession = std::unique_ptr<ort::OrtSession, Releases<ort::OrtSession, ort::kReleaseSession>>;
using Value = std::unique_ptr<ort::Value, Releases<ort::Value, ort::kReleaseValue>>;
using Binding = std::unique_ptr<ort::IoBinding, Releases<ort::IoBinding, ort::kReleaseIoBinding>>;
using Info = std::unique_ptr<ort::TensorInfo, Releases<ort::TensorInfo, ort::kReleaseTensorInfo>>;

// A tensor over memory that it does not own.
Value Borrowed(const DLTensor& tensor) {
  ort::Value* value = nullptr;
  TheApi().Do<const ort::MemoryInfo*, void*, size_t, const int64_t*, size_t, int, ort::Value**>(
      ort::kCreateTensorWithData, TheApi().memory(), DataOf(tensor), static_cast<size_t>(NumBytes(tensor)),
      tensor.shape, static_cast<size_t>(tensor.ndim), TypeOf(tensor.dtype), &value);
  return Value(value);
}

Allocated Described(ort::Value* value) {
  const Api& api = TheApi();
  ort::TensorInfo* made = nullptr;
  api.Do<const ort::Value*, ort::TensorInfo**>(ort::kGetTensorTypeAndShape, value, &made);
  const Info info(made);
  int type = 0;
  size_t ndim = 0;
  void* data = nullptr;
  api.Do<const ort::TensorInfo*, int*>(ort::kGetTensorElementType, made, &type);
  api.Do<const ort::TensorInfo*, size_t*>(ort::kGetDimensionsCount, made, &ndim);
  Allocated result{std::vector<int64_t>(ndim), {}, nullptr};
  api.Do<const ort::TensorInfo*, int64_t*, size_t>(ort::kGetDimensions, made, result.shape.data(), ndim);
  if (type < 0 || type >= static_cast<int>(kTypes.size()) || kTypes[type].bits == 0)
    TVM_FFI_THROW(TypeError)
        << "a result of ONNX Runtime has an element type that is not supported: its number " << type;
  result.dtype = kTypes[type];
  api.Do<ort::Value*, void**>(ort::kGetTensorMutableData, value, &data);
  result.data = data;
  return result;
}

// The bindings of a call; no other call uses them at the same time.
struct Request {
  Request(ort::OrtSession* session, size_t inputs, size_t outputs) : inputs(inputs), outputs(outputs) {
    ort::IoBinding* made = nullptr;
    TheApi().Do<ort::OrtSession*, ort::IoBinding**>(ort::kCreateIoBinding, session, &made);
    binding.reset(made);
  }

  Binding binding;
  Bound inputs, outputs;
};

class OnnxRuntimeSession final : public Session {
 public:
  explicit OnnxRuntimeSession(const Model& model) : inputs_(model.inputs), outputs_(model.outputs) {
    const Api& api = TheApi();
    ort::SessionOptions* made = nullptr;
    api.Do<ort::SessionOptions**>(ort::kCreateSessionOptions, &made);
    const Options options(made);
    api.Do<ort::SessionOptions*, int>(ort::kSetGraphOptimizationLevel, made, ort::kAllOptimizations);
    api.Do<ort::SessionOptions*, int>(ort::kSetIntraOpNumThreads, made, model.threads);
    api.Do<ort::SessionOptions*, int>(ort::kSetInterOpNumThreads, made, 1);
    for (const auto& [key, value] : model.settings) {
      api.Do<ort::SessionOptions*, const char*, const char*>(ort::kAddSessionConfigEntry, made, key.c_str(),
                                                             value.c_str());
    }
    for (const std::string& library : model.libraries) {
      api.Do<ort::SessionOptions*, const char*>(ort::kRegisterCustomOpsLibrary, made, library.c_str());
    }
    ort::OrtSession* session = nullptr;
    api.Do<const ort::Env*, const void*, size_t, const ort::SessionOptions*, ort::OrtSession**>(
        ort::kCreateSessionFromArray, api.env(), model.data, model.nbytes, made, &session);
    session_.reset(session);
  }

  void Run(const std::vector<DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    const auto request = requests_.Take(
        [this] { return std::make_unique<Request>(session_.get(), inputs_.size(), outputs_.size()); });
    try {
      Bind(ort::kBindInput, request->binding.get(), inputs_, inputs, &request->inputs);
      Bind(ort::kBindOutput, request->binding.get(), outputs_, outputs, &request->outputs);
      TheApi().Do<ort::OrtSession*, const void*, const ort::IoBinding*>(ort::kRunWithBinding, session_.get(),
                                                                        nullptr, request->binding.get());
    } catch (...) {
      request->inputs.Forget();
      request->outputs.Forget();
      throw;
    }
  }

  void Run(const std::vector<DLTensor*>& inputs,
           const std::function<void(const std::vector<Allocated>&)>& take) final {
    std::vector<Value> borrowed;
    std::vector<const ort::Value*> values;
    for (const DLTensor* input : inputs) values.push_back(borrowed.emplace_back(Borrowed(*input)).get());
    std::vector<ort::Value*> made(outputs_.size(), nullptr);
    TheApi()
        .Do<ort::OrtSession*, const void*, const char* const*, const ort::Value* const*, size_t,
            const char* const*, size_t, ort::Value**>(ort::kRun, session_.get(), nullptr,
                                                      Names(inputs_).data(), values.data(), values.size(),
                                                      Names(outputs_).data(), outputs_.size(), made.data());
    std::vector<Value> owned;
    std::vector<Allocated> results;
    for (ort::Value* value : made) owned.emplace_back(value);
    for (ort::Value* value : made) results.push_back(Described(value));
    take(results);
  }

 private:
  static std::vector<const char*> Names(const std::vector<std::string>& names) {
    std::vector<const char*> pointers;
    for (const std::string& name : names) pointers.push_back(name.c_str());
    return pointers;
  }

  static void Bind(ort::Position bind, ort::IoBinding* binding, const std::vector<std::string>& names,
                   const std::vector<DLTensor*>& tensors, Bound* bound) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i] == nullptr || !bound->Changes(i, *tensors[i])) continue;
      const Value value = Borrowed(*tensors[i]);
      TheApi().Do<ort::IoBinding*, const char*, const ort::Value*>(bind, binding, names[i].c_str(),
                                                                   value.get());
    }
  }

  const std::vector<std::string> inputs_, outputs_;
  OwnedSession session_;
  ContextPool<Request> requests_;  // destroyed before the session
};

std::unique_ptr<Session> Open(const Model& model) { return std::make_unique<OnnxRuntimeSession>(model); }

std::string Describe() { return "ONNX Runtime " + TheApi().version(); }

TVM_FFI_STATIC_INIT_BLOCK() {
  static const InferenceRuntime runtime{"collage.onnxruntime", Open, Describe};
  RegisterRuntime(runtime);
}

}  // namespace
}  // namespace collage::sessions
