// Runs programs that unity_collage has compiled. Errors are exceptions: std::runtime_error with the reason.
//
//   collage::Program program("bundle");
//   std::vector<float> image(3 * 224 * 224), scores(1000);
//   program.Run({collage::Tensor(image.data(), {1, 3, 224, 224})},
//               {collage::Tensor(scores.data(), {1, 1000})});
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "unity_collage.h"

namespace collage {

template <typename T>
struct TypeOf;
template <>
struct TypeOf<float> : std::integral_constant<collage_type, COLLAGE_FLOAT32> {};
template <>
struct TypeOf<double> : std::integral_constant<collage_type, COLLAGE_FLOAT64> {};
template <>
struct TypeOf<int8_t> : std::integral_constant<collage_type, COLLAGE_INT8> {};
template <>
struct TypeOf<uint8_t> : std::integral_constant<collage_type, COLLAGE_UINT8> {};
template <>
struct TypeOf<int16_t> : std::integral_constant<collage_type, COLLAGE_INT16> {};
template <>
struct TypeOf<uint16_t> : std::integral_constant<collage_type, COLLAGE_UINT16> {};
template <>
struct TypeOf<int32_t> : std::integral_constant<collage_type, COLLAGE_INT32> {};
template <>
struct TypeOf<uint32_t> : std::integral_constant<collage_type, COLLAGE_UINT32> {};
template <>
struct TypeOf<int64_t> : std::integral_constant<collage_type, COLLAGE_INT64> {};
template <>
struct TypeOf<uint64_t> : std::integral_constant<collage_type, COLLAGE_UINT64> {};
template <>
struct TypeOf<bool> : std::integral_constant<collage_type, COLLAGE_BOOL> {};

// A dense tensor in the caller's memory. It keeps a copy of the shape, and none of the data.
class Tensor {
 public:
  template <typename T>
  Tensor(T* data, std::vector<int64_t> shape) : Tensor(data, std::move(shape), TypeOf<T>::value) {}
  Tensor(void* data, std::vector<int64_t> shape, collage_type type)
      : data_(data), shape_(std::move(shape)), type_(type) {}

  collage_tensor View() const { return {data_, shape_.data(), static_cast<int32_t>(shape_.size()), type_}; }

 private:
  void* data_;
  std::vector<int64_t> shape_;
  collage_type type_;
};

class Program {
 public:
  // Opens a folder that Program.save(..., bundle=True) wrote, or a program's file: see collage_open.
  explicit Program(const std::string& path) : program_(collage_open(path.c_str()), collage_close) {
    if (program_ == nullptr) throw std::runtime_error(collage_error());
  }

  // Writes the results of `inputs` to `results`.
  void Run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& results) const {
    std::vector<collage_tensor> given, written;
    for (const Tensor& tensor : inputs) given.push_back(tensor.View());
    for (const Tensor& tensor : results) written.push_back(tensor.View());
    if (collage_run(program_.get(), given.data(), static_cast<int32_t>(given.size()), written.data(),
                    static_cast<int32_t>(written.size())) != 0) {
      throw std::runtime_error(collage_error());
    }
  }

  std::vector<collage_value> Inputs() const {
    const collage_value* values = nullptr;
    const int32_t count = collage_inputs(program_.get(), &values);
    return {values, values + count};
  }
  std::vector<collage_value> Results() const {
    const collage_value* values = nullptr;
    const int32_t count = collage_results(program_.get(), &values);
    return {values, values + count};
  }
  int Threads() const { return collage_threads(program_.get()); }

 private:
  std::unique_ptr<collage_program, void (*)(collage_program*)> program_;
};

}  // namespace collage
