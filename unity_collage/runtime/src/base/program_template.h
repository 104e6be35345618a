// A program with sizes that may be known only when it is called.
//
// In its text a number may be a sum of products of free sizes: {"terms": [[64, "batch.0"], [3]]} is 64 *
// batch + 3. For each free size the text names an argument, and an axis of it with the extent `factor` * size
// + `offset`.
#pragma once

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/program.h"

namespace collage {

using Sizes = std::vector<int64_t>;

class ProgramTemplate {
 public:
  // Throws unless every free size has an argument.
  ProgramTemplate(tvm::ffi::json::Object text, int64_t blob_nbytes);

  const std::string& name() const { return name_; }
  bool has_free_sizes() const { return !places_.empty(); }
  // The most threads of the pool that run the program; 0 sets no limit.
  int threads() const { return threads_; }

  // The free sizes of a call, in the order of their names; throws when an argument does not have that axis.
  Sizes SizesOf(tvm::ffi::PackedArgs args) const;

  // The program for these sizes, checked like any other.
  Program At(const Sizes& sizes) const;

 private:
  struct Place {
    std::string name;
    int64_t argument, axis, factor, offset;
  };

  std::string name_;
  tvm::ffi::json::Object text_;
  int64_t blob_nbytes_;
  int threads_ = 0;
  std::vector<Place> places_;
};

// Parses {"programs": [...]}. Each program is checked when it is instantiated, with free sizes or without.
std::vector<ProgramTemplate> ParseTemplates(const std::string& json, int64_t blob_nbytes);

}  // namespace collage
