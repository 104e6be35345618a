// Typed access to parsed JSON; every failure names the key.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <optional>
#include <string>
#include <vector>

namespace collage::json {

using tvm::ffi::json::Array;
using tvm::ffi::json::Object;
using tvm::ffi::json::Value;

template <typename T>
T As(const Value& value, const std::string& what) {
  std::optional<T> cast = value.try_cast<T>();
  if (!cast.has_value())
    TVM_FFI_THROW(TypeError) << what << " has the wrong type (" << value.GetTypeKey() << ")";
  return *std::move(cast);
}

inline std::optional<Value> Find(const Object& object, const std::string& key) {
  const auto found = object.find(tvm::ffi::String(key));
  if (found == object.end()) return std::nullopt;
  return (*found).second;
}

template <typename T>
T Get(const Object& object, const std::string& key) {
  std::optional<Value> value = Find(object, key);
  if (!value.has_value()) TVM_FFI_THROW(ValueError) << "'" << key << "' is missing";
  return As<T>(*value, "'" + key + "'");
}

template <typename T>
std::vector<T> GetAll(const Object& object, const std::string& key) {
  std::vector<T> values;
  for (const Value& value : Get<Array>(object, key))
    values.push_back(As<T>(value, "an element of '" + key + "'"));
  return values;
}

}  // namespace collage::json
