// A descriptor of cuDNN's backend API, with a setter for each type of attribute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/cudnn_api.h"

namespace collage::cuda {

// cudnnFraction_t
struct DnnFraction {
  int64_t numerator;
  int64_t denominator = 1;
};

// Created and destroyed with the object. Every error names the descriptor, the attribute and the library's
// reason.
class DnnDescriptor {
 public:
  explicit DnnDescriptor(const DnnName& kind);
  DnnDescriptor(DnnDescriptor&& other) noexcept;
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept;
  ~DnnDescriptor();

  DnnDescriptor& SetInts(const DnnName& attribute, const std::vector<int64_t>& values);
  DnnDescriptor& SetInt(const DnnName& attribute, int64_t value);
  DnnDescriptor& SetFlag(const DnnName& attribute, bool value);
  DnnDescriptor& SetFloat(const DnnName& attribute, float value);
  DnnDescriptor& SetDouble(const DnnName& attribute, double value);
  DnnDescriptor& SetFractions(const DnnName& attribute, const std::vector<int64_t>& values);
  DnnDescriptor& SetText(const DnnName& attribute, const std::string& value);
  // A value of the enumeration `type`.
  DnnDescriptor& SetEnum(const DnnName& attribute, DnnType type, int value);
  DnnDescriptor& SetPointers(const DnnName& attribute, const std::vector<void*>& values);
  DnnDescriptor& SetHandle(const DnnName& attribute, DnnHandle handle);
  DnnDescriptor& SetDescriptor(const DnnName& attribute, const DnnDescriptor& value);
  DnnDescriptor& SetDescriptors(const DnnName& attribute, const std::vector<DnnDescriptor>& values);

  // After this no attribute can be set.
  DnnDescriptor& Finalize();

  int64_t GetInt(const DnnName& attribute) const;
  int GetEnum(const DnnName& attribute, DnnType type) const;
  std::vector<int> GetEnums(const DnnName& attribute, DnnType type) const;
  // Copies of what the attribute holds: one descriptor of `kind`, or all of several.
  DnnDescriptor GetDescriptor(const DnnName& attribute, const DnnName& kind) const;
  std::vector<DnnDescriptor> GetDescriptors(const DnnName& attribute, const DnnName& kind) const;
  // The same where the library does not tell their number beforehand: at most `most` of them.
  std::vector<DnnDescriptor> GetDescriptors(const DnnName& attribute, const DnnName& kind, size_t most) const;

  DnnPointer get() const { return pointer_; }

 private:
  DnnDescriptor& Set(const DnnName& attribute, DnnType type, size_t count, const void* values);
  int64_t Get(const DnnName& attribute, DnnType type, size_t count, void* values) const;

  const DnnName* kind_;
  DnnPointer pointer_ = nullptr;
};

}  // namespace collage::cuda
