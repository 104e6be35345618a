// include/unity_collage.h: programs for callers in C.
#include <dlpack/dlpack.h>
#include <sys/stat.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../include/unity_collage.h"
#include "base/arguments.h"
#include "base/bundle.h"
#include "base/context_pool.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/loaded_files.h"
#include "base/pool.h"
#include "base/program_needs.h"
#include "base/seal.h"

namespace collage {
namespace {

using json::Get;
using json::Object;
using json::Value;
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::String;
using tvm::ffi::Tensor;

constexpr size_t kAlignment = 64;
thread_local std::string last_error;

struct NamedType {
  const char* name;
  collage_type type;
};
constexpr NamedType kTypes[] = {
    {"float32", COLLAGE_FLOAT32}, {"float16", COLLAGE_FLOAT16}, {"bfloat16", COLLAGE_BFLOAT16},
    {"float64", COLLAGE_FLOAT64}, {"int8", COLLAGE_INT8},       {"uint8", COLLAGE_UINT8},
    {"int16", COLLAGE_INT16},     {"uint16", COLLAGE_UINT16},   {"int32", COLLAGE_INT32},
    {"uint32", COLLAGE_UINT32},   {"int64", COLLAGE_INT64},     {"uint64", COLLAGE_UINT64},
    {"bool", COLLAGE_BOOL}};

collage_type TypeNamed(const std::string& name) {
  for (const NamedType& each : kTypes) {
    if (name == each.name) return each.type;
  }
  return COLLAGE_OTHER;
}

DLDataType DTypeOf(collage_type type) {
  for (const NamedType& each : kTypes) {
    if (type == each.type) return ParseDType(each.name);
  }
  TVM_FFI_THROW(TypeError) << "there is no element type " << static_cast<int>(type);
}

// Memory of the caller, or a copy where it is not aligned to the 64 bytes that kernels assume.
struct Input {
  void* data;
  bool is_copied = false;

  void AllocData(DLTensor* tensor) {
    tensor->data = data;
    if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0) return;
    const auto nbytes = static_cast<size_t>(NumBytes(*tensor));
    tensor->data = ::operator new(nbytes, std::align_val_t(kAlignment));
    std::memcpy(tensor->data, data, nbytes);
    is_copied = true;
  }
  void FreeData(DLTensor* tensor) {
    if (is_copied) ::operator delete(tensor->data, std::align_val_t(kAlignment));
  }
};

// Why a tensor cannot be read as an input. An input that is not known has no name, and any type and shape.
Reason WhyNotTaken(const collage_tensor& given, const collage_value& input) {
  if (given.ndim < 0 || (given.ndim > 0 && given.shape == nullptr)) return "it has no shape";
  const int64_t *begin = given.shape, *end = begin + given.ndim;
  if (std::any_of(begin, end, [](int64_t extent) { return extent < 0; })) return "it has a negative extent";
  if (given.data == nullptr && std::find(begin, end, 0) == end) return "it has no data";
  if (input.type != COLLAGE_OTHER && given.type != input.type) return "it has another type";
  if (input.ndim < 0) return std::nullopt;
  if (given.ndim != input.ndim)
    return "it has " + std::to_string(given.ndim) + " dimensions, not " + std::to_string(input.ndim);
  for (int32_t i = 0; i < given.ndim; ++i) {
    if (input.shape[i] < 0 || given.shape[i] == input.shape[i]) continue;
    return "dimension " + std::to_string(i) + " is " + std::to_string(given.shape[i]) + ", not " +
           std::to_string(input.shape[i]);
  }
  return std::nullopt;
}

Tensor Taken(const collage_tensor& given, const collage_value& input) {
  if (const Reason reason = WhyNotTaken(given, input); reason.has_value())
    TVM_FFI_THROW(ValueError) << "input '" << input.name << "': " << *reason;
  return Tensor::FromNDAlloc(Input{given.data}, tvm::ffi::ShapeView(given.shape, given.ndim),
                             DTypeOf(given.type), DLDevice{kDLCPU, 0});
}

// Memory for a copy of a result.
struct Copy {
  void AllocData(DLTensor* tensor) {
    tensor->data = ::operator new(static_cast<size_t>(NumBytes(*tensor)), std::align_val_t(kAlignment));
  }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data, std::align_val_t(kAlignment)); }
};

void* DataOf(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

Tensor Copied(const Tensor& result) {
  const DLTensor& tensor = *result.GetDLTensorPtr();
  Tensor copy = Tensor::FromNDAlloc(Copy{}, tvm::ffi::ShapeView(tensor.shape, tensor.ndim), tensor.dtype,
                                    DLDevice{kDLCPU, 0});
  std::memcpy(DataOf(*copy.GetDLTensorPtr()), DataOf(tensor), static_cast<size_t>(NumBytes(tensor)));
  return copy;
}

void Flatten(const Any& value, std::vector<Tensor>* tensors) {
  if (const auto tensor = value.try_cast<Tensor>(); tensor.has_value()) {
    tensors->push_back(*tensor);
    return;
  }
  const auto several = value.try_cast<Array<Any>>();
  if (!several.has_value()) TVM_FFI_THROW(TypeError) << "a result is not a tensor";
  for (const Any& each : *several) Flatten(each, tensors);
}

// The results that this thread has views of.
thread_local std::vector<Tensor> held;

void Give(const Tensor& result, collage_tensor* taken, int32_t number) {
  const DLTensor& tensor = *result.GetDLTensorPtr();
  if (taken->data == nullptr) {
    *taken = {DataOf(tensor), tensor.shape, tensor.ndim, TypeNamed(DTypeName(tensor.dtype))};
    return;
  }
  bool fits = taken->ndim == tensor.ndim && SameDType(DTypeOf(taken->type), tensor.dtype);
  for (int32_t i = 0; fits && i < taken->ndim; ++i) fits = taken->shape[i] == tensor.shape[i];
  if (!fits) {
    TVM_FFI_THROW(ValueError) << "result " << number << " is " << DTypeName(tensor.dtype)
                              << ", and its buffer has another type or shape";
  }
  std::memcpy(taken->data, DataOf(tensor), static_cast<size_t>(NumBytes(tensor)));
}

// A file that replaces another one under its name has another inode. A file that is written to again keeps
// it, and has another time of change.
struct FileId {
  std::pair<dev_t, ino_t> inode;
  std::string changed;

  bool operator!=(const FileId& other) const { return inode != other.inode || changed != other.changed; }
};

FileId IdOf(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) TVM_FFI_THROW(RuntimeError) << path << ": " << std::strerror(errno);
  const timespec& changed = status.st_mtim;
  return {{status.st_dev, status.st_ino},
          std::to_string(changed.tv_sec) + "." + std::to_string(changed.tv_nsec)};
}

}  // namespace
}  // namespace collage

// A virtual machine serves one call at a time. The virtual machines of a program share its weights.
struct collage_program {
  explicit collage_program(const std::string& path) {
    const collage::FileId id = collage::IdOf(path);
    if (const collage::Reason reason = collage::WhyNotSealed(path); reason.has_value()) Refuse(path, *reason);
    const std::string facts = collage::SealedFacts(path);
    if (const collage::Reason reason = collage::WhyNotHere(facts); reason.has_value()) Refuse(path, *reason);
    Describe(collage::json::As<collage::Object>(tvm::ffi::json::Parse(facts), "the facts about a program"));
    module_ = collage::LoadedFile(path, id.changed);
    if (!module_.has_value())
      Refuse(path, "it was written to while a program of it is open; close that first");
    if (collage::IdOf(path) != id) Refuse(path, "it was replaced while it was loaded");
    const auto first = machines_.Take([this] { return Started(); });  // fails here if it cannot run
  }

  void Run(const collage_tensor* given, int32_t num_inputs, collage_tensor* results, int32_t num_results) {
    collage::held.clear();
    const std::vector<tvm::ffi::Any> tensors = Taken(given, num_inputs);
    std::vector<tvm::ffi::AnyView> arguments(tensors.begin(), tensors.end());
    const auto machine = machines_.Take([this] { return Started(); });
    tvm::ffi::Any found;
    machine->main.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &found);
    const std::vector<bool> is_shared = Hold(found);
    if (collage::held.size() != static_cast<size_t>(num_results)) {
      TVM_FFI_THROW(ValueError) << "the program has " << collage::held.size() << " results, not "
                                << num_results;
    }
    // All of them first: the memory of a result may be an input, where another result is written.
    for (int32_t i = 0; i < num_results; ++i) {
      if (is_shared[i]) collage::held[i] = collage::Copied(collage::held[i]);
    }
    for (int32_t i = 0; i < num_results; ++i) collage::Give(collage::held[i], results + i, i);
  }

  std::vector<collage_value> inputs, results;
  int32_t threads = 0;

 private:
  struct Machine {
    tvm::ffi::Module module;
    tvm::ffi::Function main;
  };

  std::vector<tvm::ffi::Any> Taken(const collage_tensor* given, int32_t count) const {
    constexpr collage_value kNotKnown{"", nullptr, -1, COLLAGE_OTHER};
    if (is_known_ && static_cast<size_t>(count) != inputs.size())
      TVM_FFI_THROW(ValueError) << "the program has " << inputs.size() << " inputs, not " << count;
    std::vector<tvm::ffi::Any> tensors;
    for (int32_t i = 0; i < count; ++i)
      tensors.push_back(collage::Taken(given[i], is_known_ ? inputs[i] : kNotKnown));
    return tensors;
  }

  [[noreturn]] static void Refuse(const std::string& path, const std::string& reason) {
    TVM_FFI_THROW(RuntimeError) << path << " cannot be loaded as a program: " << reason;
    TVM_FFI_UNREACHABLE();
  }

  // Keeps the tensors of a result. For each, whether it may be in memory of an input, a constant or another
  // one.
  std::vector<bool> Hold(const tvm::ffi::Any& found) const {
    const auto several = found.try_cast<tvm::ffi::Array<tvm::ffi::Any>>();
    const int64_t count = several.has_value() ? static_cast<int64_t>(several->size()) : 1;
    std::vector<bool> is_shared;
    for (int64_t i = 0; i < count; ++i) {
      collage::Flatten(several.has_value() ? (*several)[i] : found, &collage::held);
      is_shared.resize(collage::held.size(), shared_.count(i) > 0);
    }
    return is_shared;
  }

  std::unique_ptr<Machine> Started() const {
    constexpr int kFirst = 0, kPooled = 2;  // the first CPU, and memory that is kept for the next run
    auto machine = (*module_)->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
    machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), kFirst, kPooled);
    const auto main = machine->GetFunction("main");
    if (!main.has_value()) TVM_FFI_THROW(RuntimeError) << "the program has no function main";
    return std::make_unique<Machine>(Machine{machine, *main});
  }

  void Describe(const collage::Object& facts) {
    if (const auto found = collage::json::Find(facts, "threads"); found.has_value())
      threads = static_cast<int32_t>(found->try_cast<int64_t>().value_or(0));
    const auto signature = collage::json::Find(facts, "signature");
    const auto known = signature.has_value() ? signature->try_cast<collage::Object>() : std::nullopt;
    is_known_ = known.has_value();
    if (!is_known_) return;
    for (const auto& each : collage::json::GetAll<collage::Object>(*known, "inputs"))
      inputs.push_back(Described(each));
    for (const auto& each : collage::json::GetAll<collage::Object>(*known, "results"))
      results.push_back(Described(each));
    for (const int64_t number : collage::json::GetAll<int64_t>(*known, "shared")) shared_.insert(number);
  }

  collage_value Described(const collage::Object& spec) {
    texts_.push_back(collage::Get<tvm::ffi::String>(spec, "name"));
    collage_value value{texts_.back().c_str(), nullptr, -1, COLLAGE_OTHER};
    const auto dtype = collage::json::Find(spec, "dtype");
    if (!dtype.has_value()) return value;
    value.type = collage::TypeNamed(collage::json::As<tvm::ffi::String>(*dtype, "an element type"));
    const auto shape = collage::json::Find(spec, "shape");
    const auto dims = shape.has_value() ? shape->try_cast<collage::json::Array>() : std::nullopt;
    if (!dims.has_value()) return value;
    shapes_.emplace_back();
    for (const collage::Value& dim : *dims) shapes_.back().push_back(dim.try_cast<int64_t>().value_or(-1));
    value.shape = shapes_.back().data();
    value.ndim = static_cast<int32_t>(shapes_.back().size());
    return value;
  }

  std::optional<tvm::ffi::Module> module_;
  bool is_known_ = false;     // whether `inputs` and `results` describe all there are
  std::set<int64_t> shared_;  // the numbers of results that may be in memory of others
  collage::ContextPool<Machine> machines_;
  std::deque<std::string> texts_;  // deques: their elements do not move, and descriptions point to them
  std::deque<std::vector<int64_t>> shapes_;
};

namespace {

// What `body` returns. If it throws, the reason is kept for collage_error, and the result is `otherwise`.
template <typename Result, typename Body>
Result Guarded(Result otherwise, const Body& body) {
  try {
    return body();
  } catch (const tvm::ffi::Error& error) {
    collage::last_error = error.message();
  } catch (const std::exception& error) {
    collage::last_error = error.what();
  }
  const size_t end = collage::last_error.find('\n');
  if (end != std::string::npos) collage::last_error.resize(end);
  return otherwise;
}

std::string Absolute(const char* path) {
  // The loader would look for a name without a slash in its search path, not in the working directory.
  const std::unique_ptr<char, void (*)(void*)> found(realpath(path, nullptr), std::free);
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << path << ": " << std::strerror(errno);
  return found.get();
}

bool IsFolder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

extern "C" {

collage_program* collage_open(const char* path) {
  return Guarded<collage_program*>(nullptr, [&] {
    const std::string place = Absolute(path);
    return new collage_program(IsFolder(place) ? collage::OpenBundle(place) : place);
  });
}

void collage_close(collage_program* program) {
  collage::held.clear();
  delete program;
}

int32_t collage_inputs(const collage_program* program, const collage_value** values) {
  *values = program->inputs.data();
  return static_cast<int32_t>(program->inputs.size());
}

int32_t collage_results(const collage_program* program, const collage_value** values) {
  *values = program->results.data();
  return static_cast<int32_t>(program->results.size());
}

int collage_run(collage_program* program, const collage_tensor* inputs, int32_t num_inputs,
                collage_tensor* results, int32_t num_results) {
  return Guarded(-1, [&] {
    program->Run(inputs, num_inputs, results, num_results);
    return 0;
  });
}

int32_t collage_threads(const collage_program* program) { return program->threads; }

int collage_set_threads(int32_t threads) {
  return Guarded(-1, [&] {
    collage::SetNumThreads(threads);
    return 0;
  });
}

const char* collage_error(void) { return collage::last_error.c_str(); }
}
