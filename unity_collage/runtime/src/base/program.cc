#include "base/program.h"

#include <tvm/ffi/error.h>

#include "base/aligned_buffer.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"

namespace collage {
namespace {

using json::Get;
using json::GetAll;
using json::Object;

View ParseView(const Object& text) {
  View view{static_cast<int>(Get<int64_t>(text, "buffer")), GetAll<int64_t>(text, "dims"),
            GetAll<int64_t>(text, "strides"), ParseDType(Get<tvm::ffi::String>(text, "dtype")),
            Get<int64_t>(text, "offset")};
  if (view.dims.size() != view.strides.size()) {
    TVM_FFI_THROW(ValueError) << "a view has " << view.dims.size() << " dims but " << view.strides.size()
                              << " strides";
  }
  return view;
}

PostOp ParsePostOp(const Object& text) {
  PostOp post_op{Get<tvm::ffi::String>(text, "kind"), Attrs(text), std::nullopt};
  if (post_op.attrs.Has("arg")) post_op.arg = ParseView(Get<Object>(text, "arg"));
  return post_op;
}

Step ParseStep(const Object& text) {
  Step step{Get<tvm::ffi::String>(text, "primitive"), {}, {}, {}};
  for (const auto& [name, view] : Get<Object>(text, "args")) {
    step.args.emplace(json::As<tvm::ffi::String>(name, "the name of an argument"),
                      ParseView(json::As<Object>(view, "an argument")));
  }
  if (json::Find(text, "attrs")) step.attrs = Attrs(Get<Object>(text, "attrs"));
  if (json::Find(text, "post_ops")) {
    for (const Object& post_op : GetAll<Object>(text, "post_ops"))
      step.post_ops.push_back(ParsePostOp(post_op));
  }
  return step;
}

Buffer* BufferAt(Program* program, int64_t id) {
  if (id < 0 || id >= static_cast<int64_t>(program->buffers.size())) {
    TVM_FFI_THROW(IndexError) << "there is no buffer " << id << " among " << program->buffers.size();
  }
  return &program->buffers[id];
}

void PlaceBuffer(Program* program, int64_t id, Place place, int64_t where) {
  Buffer* buffer = BufferAt(program, id);
  if (buffer->place != Place::kTemporary) TVM_FFI_THROW(ValueError) << "buffer " << id << " is given twice";
  buffer->place = place;
  buffer->where = where;
}

void ParseArguments(const Object& text, Program* program) {
  for (const Place place : {Place::kInput, Place::kOutput}) {
    for (const int64_t id : GetAll<int64_t>(text, place == Place::kInput ? "inputs" : "outputs")) {
      PlaceBuffer(program, id, place, static_cast<int64_t>(program->arguments.size()));
      program->arguments.push_back(static_cast<int>(id));
    }
  }
}

void ParseConstant(const Object& text, int64_t blob_nbytes, Program* program) {
  const int64_t id = Get<int64_t>(text, "buffer");
  const int64_t offset = Get<int64_t>(text, "offset");
  PlaceBuffer(program, id, Place::kConstant, offset);
  const int64_t nbytes = program->buffers[id].nbytes;
  if (Get<int64_t>(text, "nbytes") != nbytes || offset < 0 || offset + nbytes > blob_nbytes) {
    TVM_FFI_THROW(ValueError) << "constant buffer " << id << " (" << nbytes << " bytes at " << offset
                              << ") does not fit the blob of " << blob_nbytes << " bytes";
  }
}

// Throws unless the view lies inside its buffer: a library would read or write outside. A view without
// elements is refused unless `may_be_empty`, since few libraries take one.
void CheckBounds(Program* program, const View& view, bool may_be_empty = false) {
  const Buffer* buffer = BufferAt(program, view.buffer);
  int64_t last = 0;
  bool is_empty = false;
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i] < (may_be_empty ? 0 : 1) || view.strides[i] < 0)
      TVM_FFI_THROW(ValueError) << "a view has an empty or reversed dim";
    last += (view.dims[i] - 1) * view.strides[i];
    is_empty |= view.dims[i] == 0;
  }
  const int64_t end = view.offset + (is_empty ? 0 : (last + 1) * ItemSize(view.dtype));
  if (view.offset < 0 || end > buffer->nbytes) {
    TVM_FFI_THROW(ValueError) << "a view ends at byte " << end << " of buffer " << view.buffer
                              << ", which has " << buffer->nbytes;
  }
}

// Results are the arguments with names that begin with "dst", and "c", the result of a BLAS product.
void CheckWritable(const std::string& name, const Buffer& buffer) {
  if (name.rfind("dst", 0) != 0 && name != "c") return;
  if (buffer.place == Place::kInput) TVM_FFI_THROW(ValueError) << "'" << name << "' is an input";
  if (buffer.place == Place::kConstant) TVM_FFI_THROW(ValueError) << "'" << name << "' is a constant";
}

void CheckViews(Program* program, const Step& step) {
  const std::string may_be_empty = step.attrs.TextOr("may_be_empty", "");
  for (const auto& [name, view] : step.args) {
    CheckBounds(program, view, name == may_be_empty);
    CheckWritable(name, program->buffers[view.buffer]);
  }
  for (const PostOp& post_op : step.post_ops) {
    if (post_op.arg.has_value()) CheckBounds(program, *post_op.arg);
  }
}

void ParseSteps(const Object& text, Program* program) {
  for (const Object& step : GetAll<Object>(text, "steps")) {
    const size_t index = program->steps.size();
    Within("step " + std::to_string(index), [&] {
      program->steps.push_back(ParseStep(step));
      CheckViews(program, program->steps.back());
    });
  }
}

// Whether an argument is empty, and no result has an element.
bool IsEmpty(const Program& program) {
  bool empty = false, has_result = false;
  for (const Buffer& buffer : program.buffers) {
    empty |= (buffer.place == Place::kInput || buffer.place == Place::kOutput) && buffer.nbytes == 0;
    has_result |= buffer.place == Place::kOutput && buffer.nbytes != 0;
  }
  return empty && !has_result;
}

}  // namespace

Program ParseProgram(const Object& text, int64_t blob_nbytes) {
  Program program{Get<tvm::ffi::String>(text, "name"), {}, {}, {}};
  Within(program.name, [&] {
    for (const Object& buffer : GetAll<Object>(text, "buffers")) {
      program.buffers.push_back(
          Buffer{Get<int64_t>(buffer, "nbytes"), ParseDType(Get<tvm::ffi::String>(buffer, "dtype"))});
    }
    ParseArguments(text, &program);
    for (const Object& constant : GetAll<Object>(text, "constants")) {
      ParseConstant(constant, blob_nbytes, &program);
    }
    program.is_empty = IsEmpty(program);
    if (!program.is_empty) ParseSteps(text, &program);
  });
  return program;
}

std::vector<int64_t> PlaceTemporaries(const Program& program) {
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Buffer& buffer : program.buffers) {
    offsets.push_back(end);
    if (buffer.place == Place::kTemporary) end += static_cast<int64_t>(RoundUp(buffer.nbytes));
  }
  offsets.push_back(end);
  return offsets;
}

std::string StepName(const Program& program, size_t step) {
  return "step " + std::to_string(step) + " (" + program.steps[step].primitive + ")";
}

}  // namespace collage
