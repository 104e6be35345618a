#include "base/dtype.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>

namespace collage {
namespace {

struct Named {
  const char* name;
  DLDataType dtype;
};

constexpr std::array<Named, 13> kNames = {{
    {"float32", {kDLFloat, 32, 1}},
    {"float16", {kDLFloat, 16, 1}},
    {"bfloat16", {kDLBfloat, 16, 1}},
    {"float64", {kDLFloat, 64, 1}},
    {"int8", {kDLInt, 8, 1}},
    {"uint8", {kDLUInt, 8, 1}},
    {"int16", {kDLInt, 16, 1}},
    {"uint16", {kDLUInt, 16, 1}},
    {"int32", {kDLInt, 32, 1}},
    {"uint32", {kDLUInt, 32, 1}},
    {"int64", {kDLInt, 64, 1}},
    {"uint64", {kDLUInt, 64, 1}},
    {"bool", {kDLBool, 8, 1}},
}};

}  // namespace

DLDataType ParseDType(const std::string& name) {
  const auto found =
      std::find_if(kNames.begin(), kNames.end(), [&](const Named& n) { return n.name == name; });
  if (found == kNames.end()) TVM_FFI_THROW(ValueError) << "unknown dtype '" << name << "'";
  return found->dtype;
}

std::string DTypeName(DLDataType dtype) {
  const auto found =
      std::find_if(kNames.begin(), kNames.end(), [&](const Named& n) { return SameDType(n.dtype, dtype); });
  if (found != kNames.end()) return found->name;
  return "dtype(code=" + std::to_string(dtype.code) + ", bits=" + std::to_string(dtype.bits) +
         ", lanes=" + std::to_string(dtype.lanes) + ")";
}

}  // namespace collage
