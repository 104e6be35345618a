// The functions of cuBLASLt that we call, with the types and numbers of its headers (cuBLAS 13).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/runtime_api.h"

namespace collage::cuda {

// cublasLtHandle_t, and pointers to the structures of descriptors: only the library knows what they point to.
using LtHandle = void*;
using LtPointer = void*;

// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristicResult {
  LtAlgorithm algorithm;
  size_t workspace_nbytes;
  int state;
  float waves;
  int reserved[4];
};

// cudaDataType
constexpr int kLtFloat32 = 0;
constexpr int kLtFloat16 = 2;
constexpr int kLtBfloat16 = 14;
// cublasComputeType_t
constexpr int kLtComputeFloat32 = 68;
constexpr int kLtComputeTf32 = 77;
// cublasOperation_t
constexpr int32_t kLtPlain = 0;
constexpr int32_t kLtTransposed = 1;
// cublasLtEpilogue_t; the bias is a bit of its own
constexpr uint32_t kLtNoEpilogue = 1;
constexpr uint32_t kLtRelu = 2;
constexpr uint32_t kLtBias = 4;
constexpr uint32_t kLtGelu = 32;
// cublasLtReductionScheme_t: partial sums stay in the compute type
constexpr uint32_t kLtReduceInComputeType = 2;

// cublasLtMatmulDescAttributes_t
constexpr int kLtTransA = 3;         // int32_t
constexpr int kLtTransB = 4;         // int32_t
constexpr int kLtEpilogue = 7;       // uint32_t
constexpr int kLtBiasPointer = 8;    // const void*
constexpr int kLtBiasDataType = 26;  // int32_t
// cublasLtMatrixLayoutAttribute_t
constexpr int kLtBatchCount = 5;   // int32_t
constexpr int kLtBatchStride = 6;  // int64_t, in elements
// cublasLtMatmulPreferenceAttributes_t
constexpr int kLtMaxWorkspace = 1;      // uint64_t, in bytes
constexpr int kLtReductionSchemes = 3;  // uint32_t, a mask
constexpr int kLtAlignmentA = 5;        // uint32_t, in bytes; so are B, C and D
constexpr int kLtAlignmentB = 6;
constexpr int kLtAlignmentC = 7;
constexpr int kLtAlignmentD = 8;
// cublasLtMatmulAlgoConfigAttributes_t
constexpr int kLtAlgorithmId = 0;  // int32_t
constexpr int kLtTileId = 1;       // uint32_t
constexpr int kLtSplitK = 2;       // int32_t
constexpr int kLtStagesId = 6;     // uint32_t

struct LtApi {
  size_t (*get_version)();
  const char* (*get_status_name)(int status);
  const char* (*get_status_string)(int status);
  int (*create)(LtHandle* handle);
  int (*matmul)(LtHandle handle, LtPointer product, const void* alpha, const void* a, LtPointer a_layout,
                const void* b, LtPointer b_layout, const void* beta, const void* c, LtPointer c_layout,
                void* d, LtPointer d_layout, const LtAlgorithm* algorithm, void* workspace,
                size_t workspace_nbytes, Stream stream);
  int (*get_heuristic)(LtHandle handle, LtPointer product, LtPointer a_layout, LtPointer b_layout,
                       LtPointer c_layout, LtPointer d_layout, LtPointer preference, int count,
                       LtHeuristicResult* results, int* found);
  int (*get_algorithm_config)(const LtAlgorithm* algorithm, int attribute, void* value, size_t nbytes,
                              size_t* written);
  int (*create_product)(LtPointer* product, int compute_type, int scale_type);
  int (*set_product)(LtPointer product, int attribute, const void* value, size_t nbytes);
  int (*destroy_product)(LtPointer product);
  int (*create_layout)(LtPointer* layout, int type, uint64_t rows, uint64_t cols, int64_t leading);
  int (*set_layout)(LtPointer layout, int attribute, const void* value, size_t nbytes);
  int (*destroy_layout)(LtPointer layout);
  int (*create_preference)(LtPointer* preference);
  int (*set_preference)(LtPointer preference, int attribute, const void* value, size_t nbytes);
  int (*destroy_preference)(LtPointer preference);
};

// The library, opened with the first call; throws a RuntimeError where it cannot be opened.
const LtApi& Lt();

// Throws a RuntimeError "<function> failed: <name of the status>: <its text>" unless `status` is a success.
void CheckLt(int status, const char* function);

// The handle of this process, made with the first call. It needs a device; threads may share it.
LtHandle TheLtHandle();

// A descriptor of the library, destroyed with this object.
class LtDescriptor {
 public:
  // A product that computes in `compute_type`, with alpha and beta of float32.
  static LtDescriptor Product(int compute_type);
  // A column-major matrix: the columns are `leading` elements apart.
  static LtDescriptor Layout(int type, int64_t rows, int64_t cols, int64_t leading);
  static LtDescriptor Preference();

  LtDescriptor(LtDescriptor&& other) noexcept;
  LtDescriptor& operator=(LtDescriptor&&) = delete;
  ~LtDescriptor();

  // The size of `value` must be that of the attribute.
  template <typename T>
  void Set(int attribute, const T& value) {
    CheckLt(set_(pointer_, attribute, &value, sizeof(value)), set_name_);
  }

  LtPointer get() const { return pointer_; }

 private:
  using SetFunction = int (*)(LtPointer, int, const void*, size_t);
  using DestroyFunction = int (*)(LtPointer);

  LtDescriptor(LtPointer pointer, SetFunction set, const char* set_name, DestroyFunction destroy)
      : pointer_(pointer), set_(set), set_name_(set_name), destroy_(destroy) {}

  LtPointer pointer_;
  SetFunction set_;
  const char* set_name_;
  DestroyFunction destroy_;
};

}  // namespace collage::cuda
