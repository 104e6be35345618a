// Sessions of MNN: kind "collage.mnn". MNN has no C interface, so a function of Python calls its package.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include "base/arguments.h"
#include "sessions/bound.h"
#include "sessions/session.h"

namespace collage::sessions {
namespace {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Map;
using tvm::ffi::String;

// Opens a model; unity_collage/runtime/mnn_sessions.py has it.
constexpr char kOpener[] = "unity_collage.mnn_session";

Array<String> Strings(const std::vector<std::string>& names) {
  Array<String> strings;
  for (const std::string& name : names) strings.push_back(name);
  return strings;
}

Function Opened(const Model& model) {
  const auto open = Function::GetGlobal(kOpener);
  if (!open.has_value()) {
    TVM_FFI_THROW(RuntimeError) << "MNN: it runs in a process of Python, where unity_collage.runtime has "
                                   "loaded it";
  }
  Map<String, String> settings;
  for (const auto& [key, value] : model.settings) settings.Set(key, value);
  return (*open)(reinterpret_cast<int64_t>(model.data), static_cast<int64_t>(model.nbytes),
                 Strings(model.inputs), Strings(model.outputs), settings, model.threads)
      .cast<Function>();
}

class MnnSession final : public Session {
 public:
  explicit MnnSession(const Model& model) : run_(Opened(model)) {}

  void Run(const std::vector<DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    std::vector<AnyView> numbers;
    for (const auto* tensors : {&inputs, &outputs}) {
      for (const DLTensor* tensor : *tensors) {
        if (tensor == nullptr) {
          numbers.insert(numbers.end(), 3, AnyView(0));
          continue;
        }
        numbers.push_back(reinterpret_cast<int64_t>(DataOf(*tensor)));
        numbers.push_back(NumBytes(*tensor));
        numbers.push_back(static_cast<int64_t>(tensor->dtype.code));
      }
    }
    Any nothing;
    run_.CallPacked(numbers.data(), static_cast<int32_t>(numbers.size()), &nothing);
  }

  void Run(const std::vector<DLTensor*>& /*inputs*/,
           const std::function<void(const std::vector<Allocated>&)>& /*take*/) final {
    TVM_FFI_THROW(RuntimeError) << "MNN: the sizes of results have to be known before the model runs";
  }

 private:
  const Function run_;
};

std::unique_ptr<Session> Open(const Model& model) { return std::make_unique<MnnSession>(model); }

std::string Describe() { return "MNN, by its package for Python"; }

TVM_FFI_STATIC_INIT_BLOCK() {
  static const InferenceRuntime runtime{"collage.mnn", Open, Describe};
  RegisterRuntime(runtime);
}

}  // namespace
}  // namespace collage::sessions
