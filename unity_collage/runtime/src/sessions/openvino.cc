// Sessions of OpenVINO: kind "collage.openvino".
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/context_pool.h"
#include "base/dtype.h"
#include "sessions/bound.h"
#include "sessions/openvino_api.h"
#include "sessions/session.h"

namespace collage::sessions {
namespace {

using ov::Check;
using ov::TheApi;

constexpr std::array<std::pair<int, DLDataType>, 13> kTypes = {{
    {ov::kBoolean, {kDLBool, 8, 1}},
    {ov::kBFloat16, {kDLBfloat, 16, 1}},
    {ov::kFloat16, {kDLFloat, 16, 1}},
    {ov::kFloat32, {kDLFloat, 32, 1}},
    {ov::kFloat64, {kDLFloat, 64, 1}},
    {ov::kInt8, {kDLInt, 8, 1}},
    {ov::kInt16, {kDLInt, 16, 1}},
    {ov::kInt32, {kDLInt, 32, 1}},
    {ov::kInt64, {kDLInt, 64, 1}},
    {ov::kUInt8, {kDLUInt, 8, 1}},
    {ov::kUInt16, {kDLUInt, 16, 1}},
    {ov::kUInt32, {kDLUInt, 32, 1}},
    {ov::kUInt64, {kDLUInt, 64, 1}},
}};

int TypeOf(DLDataType dtype) {
  for (const auto& [type, same] : kTypes) {
    if (SameDType(same, dtype)) return type;
  }
  TVM_FFI_THROW(TypeError) << "OpenVINO does not take " << DTypeName(dtype);
}

DLDataType DTypeOf(int type) {
  for (const auto& [same, dtype] : kTypes) {
    if (same == type) return dtype;
  }
  TVM_FFI_THROW(TypeError) << "a result of OpenVINO has an element type that is not supported: its number "
                           << type;
}

// Destroys an object of OpenVINO's C interface, which has a function for each type.
template <typename T, void (*ov::Api::*kFree)(T*)>
struct Frees {
  void operator()(T* object) const { (TheApi().*kFree)(object); }
};
using Tensor = std::unique_ptr<ov::Tensor, Frees<ov::Tensor, &ov::Api::free_tensor>>;
using Request = std::unique_ptr<ov::InferRequest, Frees<ov::InferRequest, &ov::Api::free_request>>;
using Read = std::unique_ptr<ov::Model, Frees<ov::Model, &ov::Api::free_model>>;
using Port = std::unique_ptr<ov::Port, Frees<ov::Port, &ov::Api::free_port>>;
using Compiled = std::unique_ptr<ov::CompiledModel, Frees<ov::CompiledModel, &ov::Api::free_compiled>>;

// Made once: it looks for OpenVINO's plug-ins on the disk, which takes long.
ov::Core* TheCore() {
  static ov::Core* core = [] {
    ov::Core* made = nullptr;
    Check(TheApi().create_core(&made));
    return made;
  }();
  return core;
}

// A tensor over memory that it does not own.
Tensor Borrowed(const DLTensor& tensor) {
  ov::Tensor* made = nullptr;
  Check(TheApi().borrow(TypeOf(tensor.dtype), {tensor.ndim, tensor.shape}, DataOf(tensor), &made));
  return Tensor(made);
}

struct BoundRequest {
  BoundRequest(const ov::CompiledModel* model, size_t inputs, size_t outputs)
      : inputs(inputs), outputs(outputs) {
    ov::InferRequest* made = nullptr;
    Check(TheApi().create_request(model, &made));
    request.reset(made);
  }

  Request request;
  Bound inputs, outputs;
};

class OpenVinoSession final : public Session {
 public:
  explicit OpenVinoSession(const Model& model) : num_outputs_(model.outputs.size()) {
    ov::Model* read = nullptr;
    Check(TheApi().read_model(TheCore(), reinterpret_cast<const char*>(model.data), model.nbytes, nullptr,
                              &read));
    const Read held(read);
    std::map<std::string, std::string> properties = {{"INFERENCE_NUM_THREADS", std::to_string(model.threads)},
                                                     {"INFERENCE_PRECISION_HINT", "f32"},
                                                     {"PERFORMANCE_HINT", "LATENCY"}};
    for (const auto& [key, value] : model.settings) properties[key] = value;
    compiled_.reset(CompiledWith(read, properties, std::make_index_sequence<2 * kMostProperties>()));
    FindInputs(model.inputs);
  }

  void Run(const std::vector<DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    const auto bound = Take(&requests_);
    try {
      BindInputs(inputs, bound->request.get(), &bound->inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i] != nullptr && bound->outputs.Changes(i, *outputs[i]))
          Check(TheApi().set_output(bound->request.get(), i, Borrowed(*outputs[i]).get()));
      }
      Check(TheApi().infer(bound->request.get()));
    } catch (...) {
      bound->inputs.Forget();
      bound->outputs.Forget();
      throw;
    }
  }

  void Run(const std::vector<DLTensor*>& inputs,
           const std::function<void(const std::vector<Allocated>&)>& take) final {
    const auto bound = Take(&allocating_);  // a request of its own kind: an output that was bound stays bound
    // Before binding, not after: a call may fail while it binds, and is repeated with the same tensors.
    bound->inputs.Forget();
    BindInputs(inputs, bound->request.get(), &bound->inputs);
    Check(TheApi().infer(bound->request.get()));
    std::vector<Tensor> held;
    std::vector<Allocated> results;
    for (size_t i = 0; i < num_outputs_; ++i) {
      ov::Tensor* tensor = nullptr;
      Check(TheApi().get_output(bound->request.get(), i, &tensor));
      held.emplace_back(tensor);
      results.push_back(Described(tensor));
    }
    take(results);
  }

 private:
  static constexpr size_t kMostProperties = 24;

  // OpenVINO's C interface takes names and values of properties as single arguments, and reads as many as it
  // is told.
  template <size_t... kAt>
  static ov::CompiledModel* CompiledWith(const ov::Model* read,
                                         const std::map<std::string, std::string>& properties,
                                         std::index_sequence<kAt...>) {
    if (properties.size() > kMostProperties)
      TVM_FFI_THROW(ValueError) << "OpenVINO: more than " << kMostProperties << " properties";
    std::array<const char*, sizeof...(kAt)> texts{};
    size_t count = 0;
    for (const auto& [key, value] : properties) {
      texts[count++] = key.c_str();
      texts[count++] = value.c_str();
    }
    ov::CompiledModel* compiled = nullptr;
    Check(TheApi().compile_model(TheCore(), read, "CPU", count, &compiled, texts[kAt]...));
    return compiled;
  }

  ContextPool<BoundRequest>::Lease Take(ContextPool<BoundRequest>* pool) const {
    return pool->Take(
        [this] { return std::make_unique<BoundRequest>(compiled_.get(), inputs_.size(), num_outputs_); });
  }

  // OpenVINO removes inputs that a model does not read, so the numbers of the others are not those of the
  // file.
  void FindInputs(const std::vector<std::string>& names) {
    size_t read = 0, found = 0;
    Check(TheApi().count_inputs(compiled_.get(), &read));
    for (const std::string& name : names) {
      ov::Port* port = nullptr;
      if (TheApi().find_input(compiled_.get(), name.c_str(), &port) != 0) port = nullptr;
      found += port != nullptr;
      inputs_.emplace_back(port);
    }
    if (found != read)
      TVM_FFI_THROW(RuntimeError) << "OpenVINO: the model reads " << read << " inputs, and " << found
                                  << " have the names that were given";
  }

  void BindInputs(const std::vector<DLTensor*>& tensors, ov::InferRequest* request, Bound* bound) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (inputs_[i] != nullptr && bound->Changes(i, *tensors[i]))
        Check(TheApi().set_input(request, inputs_[i].get(), Borrowed(*tensors[i]).get()));
    }
  }

  static Allocated Described(const ov::Tensor* tensor) {
    ov::Shape shape{};
    int type = 0;
    void* data = nullptr;
    Check(TheApi().get_shape(tensor, &shape));
    Allocated result{{shape.dims, shape.dims + shape.rank}, {}, nullptr};
    TheApi().free_shape(&shape);
    Check(TheApi().get_type(tensor, &type));
    Check(TheApi().get_data(tensor, &data));
    result.dtype = DTypeOf(type);
    result.data = data;
    return result;
  }

  const size_t num_outputs_;
  Compiled compiled_;
  std::vector<Port> inputs_;                         // null for those that are not read
  ContextPool<BoundRequest> requests_, allocating_;  // destroyed before the model
};

std::unique_ptr<Session> Open(const Model& model) { return std::make_unique<OpenVinoSession>(model); }

std::string Describe() {
  ov::Version version{};
  Check(TheApi().get_version(&version));
  const std::string text = version.build_number;
  TheApi().free_version(&version);
  return "OpenVINO " + text;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  static const InferenceRuntime runtime{"collage.openvino", Open, Describe};
  RegisterRuntime(runtime);
}

}  // namespace
}  // namespace collage::sessions
