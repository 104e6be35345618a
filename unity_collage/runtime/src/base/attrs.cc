#include <tvm/ffi/error.h>

#include "base/json.h"
#include "base/program.h"

namespace collage {

bool Attrs::Has(const std::string& key) const { return json::Find(values_, key).has_value(); }

int64_t Attrs::Int(const std::string& key) const { return json::Get<int64_t>(values_, key); }

float Attrs::Float(const std::string& key) const {
  return static_cast<float>(json::Get<double>(values_, key));
}

int64_t Attrs::IntOr(const std::string& key, int64_t otherwise) const {
  return Has(key) ? Int(key) : otherwise;
}

float Attrs::FloatOr(const std::string& key, float otherwise) const {
  return Has(key) ? Float(key) : otherwise;
}

std::string Attrs::Text(const std::string& key) const { return json::Get<tvm::ffi::String>(values_, key); }

std::string Attrs::TextOr(const std::string& key, const std::string& otherwise) const {
  return Has(key) ? Text(key) : otherwise;
}

std::vector<int64_t> Attrs::Ints(const std::string& key) const { return json::GetAll<int64_t>(values_, key); }

std::vector<float> Attrs::Floats(const std::string& key) const {
  const std::vector<double> values = json::GetAll<double>(values_, key);
  return std::vector<float>(values.begin(), values.end());
}

}  // namespace collage
