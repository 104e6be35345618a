#include "base/program_template.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <map>

#include "base/error.h"
#include "base/json.h"

namespace collage {
namespace {

using json::Array;
using json::Get;
using json::GetAll;
using json::Object;
using json::Value;

using SizeByName = std::map<std::string, int64_t>;

// The value of one product: its factors are numbers and names of sizes.
int64_t ProductOf(const Array& term, const SizeByName& sizes) {
  int64_t product = 1;
  for (const Value& factor : term) {
    if (const std::optional<int64_t> number = factor.try_cast<int64_t>(); number.has_value()) {
      product *= *number;
      continue;
    }
    const auto found = sizes.find(json::As<tvm::ffi::String>(factor, "a factor of a size"));
    if (found == sizes.end())
      TVM_FFI_THROW(ValueError) << "a size depends on a free size that no argument has";
    product *= found->second;
  }
  return product;
}

// `value` with a number in place of each sum.
Value Resolved(const Value& value, const SizeByName& sizes) {
  if (const std::optional<Array> items = value.try_cast<Array>(); items.has_value()) {
    Array resolved;
    for (const Value& item : *items) resolved.push_back(Resolved(item, sizes));
    return resolved;
  }
  const std::optional<Object> object = value.try_cast<Object>();
  if (!object.has_value()) return value;
  if (json::Find(*object, "terms").has_value()) {
    int64_t sum = 0;
    for (const Array& term : GetAll<Array>(*object, "terms")) sum += ProductOf(term, sizes);
    return sum;
  }
  Object resolved;
  for (const auto& [key, item] : *object) resolved.Set(key, Resolved(item, sizes));
  return resolved;
}

}  // namespace

ProgramTemplate::ProgramTemplate(Object text, int64_t blob_nbytes)
    : name_(Get<tvm::ffi::String>(text, "name")), text_(std::move(text)), blob_nbytes_(blob_nbytes) {
  if (json::Find(text_, "threads")) {
    threads_ = Within(name_, [&] { return static_cast<int>(Get<int64_t>(text_, "threads")); });
    if (threads_ < 0) TVM_FFI_THROW(ValueError) << name_ << ": it has " << threads_ << " threads";
  }
  if (!json::Find(text_, "sizes")) return;
  SizeByName ones;
  for (const auto& [name, where] : Get<Object>(text_, "sizes")) {
    const Object place = json::As<Object>(where, "the place of a size");
    const Attrs numbers(place);
    places_.push_back({std::string(json::As<tvm::ffi::String>(name, "the name of a size")),
                       numbers.Int("argument"), numbers.Int("axis"), numbers.IntOr("factor", 1),
                       numbers.IntOr("offset", 0)});
    if (places_.back().factor == 0) TVM_FFI_THROW(ValueError) << name_ << ": a size has the factor 0";
    ones[places_.back().name] = 1;
  }
  Within(name_, [&] { Resolved(text_, ones); });
}

Sizes ProgramTemplate::SizesOf(tvm::ffi::PackedArgs args) const {
  Sizes sizes;
  sizes.reserve(places_.size());
  for (const Place& place : places_) {
    const std::optional<DLTensor*> tensor = place.argument < args.size()
                                                ? args[static_cast<int>(place.argument)].try_cast<DLTensor*>()
                                                : std::nullopt;
    if (!tensor.has_value() || (*tensor)->ndim <= place.axis) {
      TVM_FFI_THROW(ValueError) << name_ << ": argument " << place.argument << " is not a tensor with axis "
                                << place.axis << ", of which the size " << place.name << " is the extent";
    }
    const int64_t whole = (*tensor)->shape[place.axis] - place.offset;
    if (whole % place.factor != 0) {
      TVM_FFI_THROW(ValueError) << name_ << ": argument " << place.argument << " has the extent "
                                << (*tensor)->shape[place.axis] << ", which no value of the size "
                                << place.name << " gives";
    }
    sizes.push_back(whole / place.factor);
  }
  return sizes;
}

Program ProgramTemplate::At(const Sizes& sizes) const {
  if (places_.empty()) return ParseProgram(text_, blob_nbytes_);
  SizeByName by_name;
  for (size_t i = 0; i < places_.size(); ++i) by_name[places_[i].name] = sizes[i];
  return ParseProgram(json::As<Object>(Resolved(text_, by_name), "a program"), blob_nbytes_);
}

std::vector<ProgramTemplate> ParseTemplates(const std::string& text, int64_t blob_nbytes) {
  const Object root = json::As<Object>(tvm::ffi::json::Parse(text), "the description of the programs");
  std::vector<ProgramTemplate> templates;
  for (const Object& program : GetAll<Object>(root, "programs")) templates.emplace_back(program, blob_nbytes);
  return templates;
}

}  // namespace collage
