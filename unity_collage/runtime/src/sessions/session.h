// A model that an inference runtime has compiled.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace collage::sessions {

// A result that the runtime has allocated: its memory is valid until the session's next call of this `Run`.
struct Allocated {
  std::vector<int64_t> shape;
  DLDataType dtype;
  const void* data;
};

class Session {
 public:
  virtual ~Session() = default;

  // Computes `outputs` of `inputs`: dense tensors in the memory of the CPU, which are borrowed and not
  // copied. A null output is not wanted. May be called from several threads at once.
  virtual void Run(const std::vector<DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) = 0;

  // The same for results with sizes that depend on the data: `take` gets all of them.
  virtual void Run(const std::vector<DLTensor*>& inputs,
                   const std::function<void(const std::vector<Allocated>&)>& take) = 0;
};

// A model in ONNX's format.
struct Model {
  const std::byte* data;
  size_t nbytes;
  // The names of its inputs and outputs, in the order of the tensors of a call.
  std::vector<std::string> inputs, outputs;
  // Options of the runtime, by the runtime's names for them.
  std::map<std::string, std::string> settings;
  // Paths of shared libraries with operators, which ONNX Runtime registers.
  std::vector<std::string> libraries;
  int threads;
};

struct InferenceRuntime {
  // The module kind, for example "collage.onnxruntime".
  std::string kind;
  // Compiles a model; throws with the runtime's reason.
  std::unique_ptr<Session> (*open)(const Model& model);
  // Its name and version.
  std::string (*describe)();
};

// Registers modules of kind `kind`, and <kind>.describe; `runtime` lives as long as the process.
void RegisterRuntime(const InferenceRuntime& runtime);

}  // namespace collage::sessions
