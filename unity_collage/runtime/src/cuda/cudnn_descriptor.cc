#include "cuda/cudnn_descriptor.h"

#include <utility>

namespace collage::cuda {
namespace {

void Check(int status, const char* action, const DnnName& kind, const DnnName* attribute = nullptr) {
  if (status == 0) return;
  std::string what = std::string(action) + " " + kind.text;
  if (attribute != nullptr) what += std::string(" ") + attribute->text;
  CheckDnn(status, what.c_str());
}

}  // namespace

DnnDescriptor::DnnDescriptor(const DnnName& kind) : kind_(&kind) {
  Check(Dnn().create_descriptor(kind.number, &pointer_), "cuDNN cannot create", kind);
}

DnnDescriptor::DnnDescriptor(DnnDescriptor&& other) noexcept
    : kind_(other.kind_), pointer_(std::exchange(other.pointer_, nullptr)) {}

DnnDescriptor& DnnDescriptor::operator=(DnnDescriptor&& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(pointer_, other.pointer_);
  return *this;
}

DnnDescriptor::~DnnDescriptor() {
  if (pointer_ != nullptr) Dnn().destroy_descriptor(pointer_);
}

DnnDescriptor& DnnDescriptor::SetInts(const DnnName& attribute, const std::vector<int64_t>& values) {
  return Set(attribute, DnnType::kInt64, values.size(), values.data());
}

DnnDescriptor& DnnDescriptor::SetInt(const DnnName& attribute, int64_t value) {
  return Set(attribute, DnnType::kInt64, 1, &value);
}

DnnDescriptor& DnnDescriptor::SetFlag(const DnnName& attribute, bool value) {
  return Set(attribute, DnnType::kBoolean, 1, &value);
}

DnnDescriptor& DnnDescriptor::SetFloat(const DnnName& attribute, float value) {
  return Set(attribute, DnnType::kFloat, 1, &value);
}

DnnDescriptor& DnnDescriptor::SetDouble(const DnnName& attribute, double value) {
  return Set(attribute, DnnType::kDouble, 1, &value);
}

DnnDescriptor& DnnDescriptor::SetFractions(const DnnName& attribute, const std::vector<int64_t>& values) {
  std::vector<DnnFraction> fractions;
  for (const int64_t value : values) fractions.push_back(DnnFraction{value});
  return Set(attribute, DnnType::kFraction, fractions.size(), fractions.data());
}

DnnDescriptor& DnnDescriptor::SetText(const DnnName& attribute, const std::string& value) {
  return Set(attribute, DnnType::kChar, value.size(), value.data());
}

DnnDescriptor& DnnDescriptor::SetEnum(const DnnName& attribute, DnnType type, int value) {
  return Set(attribute, type, 1, &value);
}

DnnDescriptor& DnnDescriptor::SetPointers(const DnnName& attribute, const std::vector<void*>& values) {
  return Set(attribute, DnnType::kVoidPointer, values.size(), values.data());
}

DnnDescriptor& DnnDescriptor::SetHandle(const DnnName& attribute, DnnHandle handle) {
  return Set(attribute, DnnType::kHandle, 1, &handle);
}

DnnDescriptor& DnnDescriptor::SetDescriptor(const DnnName& attribute, const DnnDescriptor& value) {
  return Set(attribute, DnnType::kDescriptor, 1, &value.pointer_);
}

DnnDescriptor& DnnDescriptor::SetDescriptors(const DnnName& attribute,
                                             const std::vector<DnnDescriptor>& values) {
  std::vector<DnnPointer> pointers;
  for (const DnnDescriptor& value : values) pointers.push_back(value.pointer_);
  return Set(attribute, DnnType::kDescriptor, pointers.size(), pointers.data());
}

DnnDescriptor& DnnDescriptor::Finalize() {
  Check(Dnn().finalize(pointer_), "cuDNN cannot finalize", *kind_);
  return *this;
}

int64_t DnnDescriptor::GetInt(const DnnName& attribute) const {
  int64_t value = 0;
  Get(attribute, DnnType::kInt64, 1, &value);
  return value;
}

int DnnDescriptor::GetEnum(const DnnName& attribute, DnnType type) const {
  int value = 0;
  Get(attribute, type, 1, &value);
  return value;
}

std::vector<int> DnnDescriptor::GetEnums(const DnnName& attribute, DnnType type) const {
  std::vector<int> values(static_cast<size_t>(Get(attribute, type, 0, nullptr)));
  if (!values.empty()) Get(attribute, type, values.size(), values.data());
  return values;
}

// The library writes into descriptors that the caller has created.
DnnDescriptor DnnDescriptor::GetDescriptor(const DnnName& attribute, const DnnName& kind) const {
  DnnDescriptor found(kind);
  Get(attribute, DnnType::kDescriptor, 1, &found.pointer_);
  return found;
}

std::vector<DnnDescriptor> DnnDescriptor::GetDescriptors(const DnnName& attribute,
                                                         const DnnName& kind) const {
  const int64_t count = Get(attribute, DnnType::kDescriptor, 0, nullptr);
  return GetDescriptors(attribute, kind, static_cast<size_t>(count));
}

std::vector<DnnDescriptor> DnnDescriptor::GetDescriptors(const DnnName& attribute, const DnnName& kind,
                                                         size_t most) const {
  std::vector<DnnDescriptor> found;
  if (most == 0) return found;
  std::vector<DnnPointer> pointers;
  for (size_t i = 0; i < most; ++i) pointers.push_back(found.emplace_back(kind).get());
  const int64_t written = Get(attribute, DnnType::kDescriptor, most, pointers.data());
  while (static_cast<int64_t>(found.size()) > written) found.pop_back();
  return found;
}

DnnDescriptor& DnnDescriptor::Set(const DnnName& attribute, DnnType type, size_t count, const void* values) {
  Check(Dnn().set_attribute(pointer_, attribute.number, static_cast<int>(type), static_cast<int64_t>(count),
                            values),
        "cuDNN refuses", *kind_, &attribute);
  return *this;
}

int64_t DnnDescriptor::Get(const DnnName& attribute, DnnType type, size_t count, void* values) const {
  int64_t found = 0;
  Check(Dnn().get_attribute(pointer_, attribute.number, static_cast<int>(type), static_cast<int64_t>(count),
                            &found, values),
        "cuDNN does not tell", *kind_, &attribute);
  return found;
}

}  // namespace collage::cuda
