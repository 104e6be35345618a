// A native function as plain data; docs/runtime.md describes its text form.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/json.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace collage {

// Part of a buffer: dims and strides count elements, the offset counts bytes.
struct View {
  int buffer;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  DLDataType dtype;
  int64_t offset;
};

// The attributes of a step. Reading one that is missing or has the wrong type throws an error that names it.
class Attrs {
 public:
  Attrs() = default;
  explicit Attrs(tvm::ffi::json::Object values) : values_(std::move(values)) {}

  bool Has(const std::string& key) const;
  int64_t Int(const std::string& key) const;
  int64_t IntOr(const std::string& key, int64_t otherwise) const;
  float Float(const std::string& key) const;
  float FloatOr(const std::string& key, float otherwise) const;
  std::string Text(const std::string& key) const;
  std::string TextOr(const std::string& key, const std::string& otherwise) const;
  std::vector<int64_t> Ints(const std::string& key) const;
  std::vector<float> Floats(const std::string& key) const;

 private:
  tvm::ffi::json::Object values_;
};

struct PostOp {
  std::string kind;
  Attrs attrs;
  std::optional<View> arg;
};

struct Step {
  std::string primitive;
  std::map<std::string, View> args;
  Attrs attrs;
  std::vector<PostOp> post_ops;
};

// Where the bytes of a buffer are when the program runs.
enum class Place { kTemporary, kInput, kOutput, kConstant };

struct Buffer {
  int64_t nbytes;
  DLDataType dtype;
  Place place = Place::kTemporary;
  // kInput, kOutput: position in the call; kConstant: offset in the blob, in bytes.
  int64_t where = 0;
};

struct Program {
  std::string name;
  std::vector<Buffer> buffers;
  // Buffer ids by position in the call: inputs, then outputs.
  std::vector<int> arguments;
  std::vector<Step> steps;
  // Whether an argument has no elements and no result has any. Then there are no steps.
  bool is_empty = false;
};

// Parses one program and checks that every id, view and constant is within its bounds.
Program ParseProgram(const tvm::ffi::json::Object& text, int64_t blob_nbytes);

// Offset of each temporary in an arena, by buffer id; the last entry is the size of the arena.
std::vector<int64_t> PlaceTemporaries(const Program& program);

// "step 2 (matmul)", for error texts.
std::string StepName(const Program& program, size_t step);

}  // namespace collage
