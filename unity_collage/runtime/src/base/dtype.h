// Element types by their numpy names.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <string>

namespace collage {

// Throws when the name is not that of a known type.
DLDataType ParseDType(const std::string& name);

std::string DTypeName(DLDataType dtype);

inline int64_t ItemSize(DLDataType dtype) { return (dtype.bits * dtype.lanes + 7) / 8; }

inline bool SameDType(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

}  // namespace collage
