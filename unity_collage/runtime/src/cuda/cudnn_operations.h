// A graph of cuDNN's operations on tensors, which one engine computes as a whole.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/program.h"
#include "cuda/cudnn_descriptor.h"

namespace collage::cuda {

// cudnnPointwiseMode_t
enum class DnnPointwiseMode : int {
  kAdd = 0,
  kMul = 1,
  kDiv = 6,
  kSub = 9,
  kExp = 13,
  kLog = 15,
  kRelu = 100,
  kTanh = 101,
  kSigmoid = 102,
  kGeluErf = 104,
  kSwish = 106,
  kGeluTanh = 107,
};

// A function of one or two tensors, element by element.
struct DnnPointwise {
  DnnPointwiseMode mode;
  // kRelu: x below the lower bound becomes lower + slope * (x - lower), x above the upper bound becomes
  // upper.
  double lower = 0.0;
  double upper = std::numeric_limits<float>::max();
  double slope = 0.0;
  // kSwish: x * sigmoid(beta * x)
  double beta = 1.0;
};

// cudnnReduceTensorOp_t
enum class DnnReduction : int { kAdd = 0, kMax = 3 };

// cudnnResampleMode_t
enum class DnnResample : int { kAverageWithPadding = 2, kMax = 3, kAverageWithoutPadding = 4 };

// The window of a convolution or a pooling, one number for each spatial dim.
struct DnnWindow {
  std::vector<int64_t> strides;
  std::vector<int64_t> before;
  std::vector<int64_t> after;
};

// Where plans run: on the device of a handle, or on a device that is only described.
struct DnnDevice {
  DnnHandle handle = nullptr;
  const DnnDescriptor* properties = nullptr;
};

class DnnGraph {
 public:
  // The number of a tensor of this graph.
  using Tensor = size_t;

  // A tensor in a buffer of the program.
  Tensor InBuffer(const View& view);
  // A tensor between two operations, which is never stored. It is float32 unless `dtype` says otherwise.
  Tensor Between(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                 DLDataType dtype = DLDataType{kDLFloat, 32, 1});
  // One number, broadcast to `rank` dims.
  Tensor Number(float value, size_t rank);

  // All operations compute in float32. A filter has (outputs, inputs of a group, spatial...).
  void Convolve(Tensor source, Tensor weights, Tensor result, const DnnWindow& window,
                const std::vector<int64_t>& dilations);
  void Apply(const DnnPointwise& function, Tensor operand, std::optional<Tensor> other, Tensor result);
  void Multiply(Tensor left, Tensor right, Tensor result);
  // Over the dims that have one element in the result.
  void Reduce(DnnReduction reduction, Tensor operand, Tensor result);
  void Resample(DnnResample mode, Tensor source, Tensor result, const std::vector<int64_t>& size,
                const DnnWindow& window);
  // Layer normalization over the dims in which `scale` has more than one element.
  void Normalize(Tensor source, Tensor scale, Tensor bias, Tensor epsilon, Tensor result);

  // The finalized operation graph. It reads descriptors of this object.
  DnnDescriptor Finalized(const DnnDevice& device) const;

  // Equal for graphs that can use each other's plans. It has everything but the buffers and the values of
  // numbers.
  const std::string& signature() const { return signature_; }

  // The tensors that a variant pack binds, and their addresses in a call; buffers[i] is the address of buffer
  // i.
  std::vector<int64_t> Ids() const;
  std::vector<void*> Addresses(std::byte* const* buffers) const;

 private:
  // A tensor that a variant pack binds: part of a buffer, or a number of this graph.
  struct Bound {
    int64_t id;
    int buffer = -1;
    int64_t offset = 0;
    int64_t alignment = 1;
    const float* number = nullptr;
  };

  Tensor Add(const char* place, const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
             DLDataType dtype, int64_t alignment);
  // Appends to the signature.
  void Sign(const std::string& name, const std::vector<int64_t>& numbers);

  std::vector<DnnDescriptor> tensors_;
  std::vector<DnnDescriptor> operations_;
  std::vector<Bound> bound_;
  std::deque<float> numbers_;  // their addresses are bound
  std::string signature_;
};

}  // namespace collage::cuda
