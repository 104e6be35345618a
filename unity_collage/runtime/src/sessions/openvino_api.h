// The functions of OpenVINO's C interface that are called here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/shared_library.h"

namespace collage::sessions::ov {

struct Core;
struct Model;
struct CompiledModel;
struct InferRequest;
struct Port;
struct Tensor;

struct Shape {
  int64_t rank;
  int64_t* dims;
};

struct Version {
  const char* build_number;
  const char* description;
};

// OpenVINO's element types, with its numbers.
enum ElementType : int {
  kBoolean = 1,
  kBFloat16 = 2,
  kFloat16 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kInt8 = 7,
  kInt16 = 8,
  kInt32 = 9,
  kInt64 = 10,
  kUInt8 = 16,
  kUInt16 = 17,
  kUInt32 = 18,
  kUInt64 = 19,
};

struct Api {
  // Throws a RuntimeError where the library or a function is missing.
  explicit Api(const SharedLibrary& library);

  int (*get_version)(Version* version);
  void (*free_version)(Version* version);
  const char* (*get_last_error)();
  const char* (*get_error_info)(int status);
  void (*free_text)(const char* text);
  int (*create_core)(Core** core);
  int (*read_model)(const Core* core, const char* model, size_t nbytes, const Tensor* weights, Model** read);
  void (*free_model)(Model* model);
  int (*compile_model)(const Core* core, const Model* model, const char* device, size_t arguments,
                       CompiledModel** compiled, ...);
  void (*free_compiled)(CompiledModel* model);
  int (*count_inputs)(const CompiledModel* model, size_t* count);
  int (*find_input)(const CompiledModel* model, const char* name, Port** port);
  void (*free_port)(Port* port);
  int (*create_request)(const CompiledModel* model, InferRequest** request);
  void (*free_request)(InferRequest* request);
  int (*set_input)(InferRequest* request, const Port* port, const Tensor* tensor);
  int (*set_output)(InferRequest* request, size_t index, const Tensor* tensor);
  int (*get_output)(const InferRequest* request, size_t index, Tensor** tensor);
  int (*infer)(InferRequest* request);
  int (*borrow)(int type, Shape shape, void* data, Tensor** tensor);
  int (*get_shape)(const Tensor* tensor, Shape* shape);
  int (*get_type)(const Tensor* tensor, int* type);
  int (*get_data)(const Tensor* tensor, void** data);
  int (*free_shape)(Shape* shape);
  void (*free_tensor)(Tensor* tensor);
};

// The interface, opened when it is first needed.
const Api& TheApi();

// Throws with OpenVINO's reason unless `status` is that of success.
void Check(int status);

}  // namespace collage::sessions::ov
