// The functions of ONNX Runtime's C interface that are called here. New versions add functions only at the
// end of the table, so the positions stay valid.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collage::sessions::ort {

struct Status;
struct Env;
struct SessionOptions;
struct OrtSession;
struct MemoryInfo;
struct Value;
struct IoBinding;
struct TensorInfo;

// The interface that has all functions below.
constexpr uint32_t kApiVersion = 17;

struct ApiBase {
  const void* const* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

// Positions in the table, as onnxruntime_c_api.h has them.
enum Position : size_t {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSessionFromArray = 8,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetGraphOptimizationLevel = 23,
  kSetIntraOpNumThreads = 24,
  kSetInterOpNumThreads = 25,
  kCreateTensorWithData = 49,
  kGetTensorMutableData = 51,
  kGetTensorElementType = 60,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kCreateCpuMemoryInfo = 69,
  kReleaseStatus = 93,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseTensorInfo = 99,
  kReleaseSessionOptions = 100,
  kAddSessionConfigEntry = 130,
  kRunWithBinding = 133,
  kCreateIoBinding = 134,
  kReleaseIoBinding = 135,
  kBindInput = 136,
  kBindOutput = 137,
  kRegisterCustomOpsLibrary = 228,  // its second version: sessions unload the library
};

constexpr int kLogErrors = 3;
constexpr int kAllOptimizations = 99;
constexpr int kArenaAllocator = 1;
constexpr int kDefaultMemory = 0;

}  // namespace collage::sessions::ort
