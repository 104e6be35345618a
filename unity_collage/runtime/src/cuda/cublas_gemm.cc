#include "cuda/cublas_gemm.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cuda/cublas_api.h"
#include "cuda/cublas_layout.h"

namespace collage::cuda {
namespace {

// cuBLASLt computes D = alpha * A * B + beta * C with column-major matrices, so it gets the transposed
// product. Its A is b, its B is a, and the rows of D, along which it adds the bias, are the columns of c.

constexpr int kNumAsked = 8;
constexpr uint64_t kMostWorkspace = 32 << 20;
// The most bytes that a kernel loads at once. A pointer must be aligned as promised to the library, but not
// beyond this.
constexpr int64_t kWidestLoad = 16;

const View& Need(const Step& step, const std::string& name) {
  const auto found = step.args.find(name);
  if (found == step.args.end()) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  return found->second;
}

const View& AddendOf(const Step& step) { return Need(step, step.args.count("addend") != 0 ? "addend" : "c"); }

int TypeOf(const std::string& name, DLDataType dtype) {
  const std::string type = DTypeName(dtype);
  if (type == "float32") return kLtFloat32;
  if (type == "float16") return kLtFloat16;
  if (type == "bfloat16") return kLtBfloat16;
  TVM_FFI_THROW(ValueError) << "'" << name << "' is " << type
                            << ", cuBLASLt takes float32, float16 and bfloat16";
  TVM_FFI_UNREACHABLE();
}

uint32_t EpilogueOf(const Step& step) {
  const std::string name = step.attrs.TextOr("epilogue", "none");
  const uint32_t bias = step.args.count("bias") != 0 ? kLtBias : 0;
  if (name == "relu") return kLtRelu | bias;
  if (name == "gelu_tanh") return kLtGelu | bias;
  if (name != "none") TVM_FFI_THROW(ValueError) << "cuBLASLt has no epilogue '" << name << "'";
  return bias != 0 ? bias : kLtNoEpilogue;
}

LtDescriptor LayoutOf(const std::string& name, const View& view, const Matrix& matrix, int64_t batch,
                      int64_t stride) {
  const int type = TypeOf(name, view.dtype);
  LtDescriptor layout = LtDescriptor::Layout(type, matrix.length(), matrix.lines(), matrix.leading);
  if (batch == 1) return layout;
  if (batch > INT_MAX) TVM_FFI_THROW(ValueError) << "a batch of " << batch << " products is too large";
  layout.Set(kLtBatchCount, static_cast<int32_t>(batch));
  layout.Set(kLtBatchStride, stride);
  return layout;
}

class Gemm final : public Kernel {
 public:
  explicit Gemm(const Step& step);

  size_t scratch_nbytes() const final { return chosen_.workspace_nbytes; }
  void Launch(std::byte* const* buffers, std::byte* scratch, Stream stream) final;
  std::string Implementation() const final;

 private:
  void CheckShapes() const;
  void Describe(const Step& step);
  LtHeuristicResult Choose(const Step& step);
  LtDescriptor Preference() const;
  int64_t AlignmentOf(Operand operand) const;
  // The address of an operand in launch `launch`.
  std::byte* At(Operand operand, size_t launch, std::byte* const* buffers) const;

  OperandViews views_;
  std::optional<View> bias_;
  Matrix a_, b_, c_, addend_;
  Batch batch_;
  float alpha_, beta_;
  OperandNumbers alignments_;
  std::mutex mutex_;  // guards the pointer to the bias, which is part of the description
  LtDescriptor product_, a_layout_, b_layout_, c_layout_, addend_layout_;
  LtHeuristicResult chosen_;
};

Gemm::Gemm(const Step& step)
    : views_{Need(step, "a"), Need(step, "b"), Need(step, "c"), AddendOf(step)},
      a_(AsMatrix("a", views_[kA])),
      b_(AsMatrix("b", views_[kB])),
      c_(AsRows("c", views_[kC])),
      addend_(AsRows("addend", views_[kAddend])),
      batch_(AsBatch(views_)),
      alpha_(step.attrs.FloatOr("alpha", 1)),
      beta_(step.args.count("addend") != 0 ? 1.0f : 0.0f),
      alignments_{AlignmentOf(kA), AlignmentOf(kB), AlignmentOf(kC), AlignmentOf(kAddend)},
      product_(LtDescriptor::Product(step.attrs.IntOr("tf32", 0) != 0 ? kLtComputeTf32 : kLtComputeFloat32)),
      a_layout_(LayoutOf("a", views_[kA], a_, batch_.inner.extent, batch_.inner.strides[kA])),
      b_layout_(LayoutOf("b", views_[kB], b_, batch_.inner.extent, batch_.inner.strides[kB])),
      c_layout_(LayoutOf("c", views_[kC], c_, batch_.inner.extent, batch_.inner.strides[kC])),
      addend_layout_(
          LayoutOf("addend", views_[kAddend], addend_, batch_.inner.extent, batch_.inner.strides[kAddend])) {
  if (step.args.count("bias") != 0) bias_ = Need(step, "bias");
  CheckShapes();
  Describe(step);
  chosen_ = Choose(step);
}

void Gemm::CheckShapes() const {
  if (a_.rows != c_.rows || b_.cols != c_.cols || a_.cols != b_.rows) {
    TVM_FFI_THROW(ValueError) << "a " << a_.rows << "x" << a_.cols << " times b " << b_.rows << "x" << b_.cols
                              << " is not c " << c_.rows << "x" << c_.cols;
  }
  if (addend_.rows != c_.rows || addend_.cols != c_.cols) {
    TVM_FFI_THROW(ValueError) << "'addend' does not have the shape of 'c'";
  }
  if (!bias_.has_value()) return;
  const bool is_packed = bias_->dims.size() == 1 && (c_.cols == 1 || bias_->strides[0] == 1);
  if (!is_packed || bias_->dims[0] != c_.cols) {
    TVM_FFI_THROW(ValueError) << "'bias' is not one contiguous number for each column of 'c'";
  }
}

void Gemm::Describe(const Step& step) {
  product_.Set(kLtTransA, b_.by_columns ? kLtTransposed : kLtPlain);
  product_.Set(kLtTransB, a_.by_columns ? kLtTransposed : kLtPlain);
  product_.Set(kLtEpilogue, EpilogueOf(step));
  if (!bias_.has_value()) return;
  product_.Set(kLtBiasDataType, static_cast<int32_t>(TypeOf("bias", bias_->dtype)));
  // The heuristic takes the alignment of the bias from the pointer, which is not yet an address.
  product_.Set(kLtBiasPointer,
               reinterpret_cast<const void*>(static_cast<uintptr_t>(Alignment({bias_->offset}))));
}

LtHeuristicResult Gemm::Choose(const Step& step) {
  const LtDescriptor preference = Preference();
  std::vector<LtHeuristicResult> results(kNumAsked);
  int found = 0;
  CheckLt(Lt().get_heuristic(TheLtHandle(), product_.get(), b_layout_.get(), a_layout_.get(),
                             addend_layout_.get(), c_layout_.get(), preference.get(), kNumAsked,
                             results.data(), &found),
          "cublasLtMatmulAlgoGetHeuristic");
  const int64_t wanted = step.attrs.IntOr("algorithm", 0);
  int64_t usable = 0;
  for (int i = 0; i < found; ++i) {
    if (results[i].state == kSuccess && usable++ == wanted) return results[i];
  }
  TVM_FFI_THROW(RuntimeError) << "cuBLASLt has only " << usable << " algorithms for it";
  TVM_FFI_UNREACHABLE();
}

LtDescriptor Gemm::Preference() const {
  LtDescriptor preference = LtDescriptor::Preference();
  preference.Set(kLtMaxWorkspace, kMostWorkspace);
  preference.Set(kLtAlignmentA, static_cast<uint32_t>(alignments_[kB]));
  preference.Set(kLtAlignmentB, static_cast<uint32_t>(alignments_[kA]));
  preference.Set(kLtAlignmentC, static_cast<uint32_t>(alignments_[kAddend]));
  preference.Set(kLtAlignmentD, static_cast<uint32_t>(alignments_[kC]));
  // Otherwise partial sums could be rounded to 16 bits.
  if (views_[kC].dtype.bits == 16) preference.Set(kLtReductionSchemes, kLtReduceInComputeType);
  return preference;
}

int64_t Gemm::AlignmentOf(Operand operand) const {
  const View& view = views_[operand];
  std::vector<int64_t> nbytes = {view.offset};
  for (const OperandNumbers& offsets : batch_.launches)
    nbytes.push_back(offsets[operand] * ItemSize(view.dtype));
  return Alignment(nbytes);
}

std::byte* Gemm::At(Operand operand, size_t launch, std::byte* const* buffers) const {
  const View& view = views_[operand];
  std::byte* const address =
      buffers[view.buffer] + view.offset + batch_.launches[launch][operand] * ItemSize(view.dtype);
  const int64_t promised = std::min(alignments_[operand], kWidestLoad);
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(promised) != 0) {
    TVM_FFI_THROW(ValueError) << "'" << OperandName(operand) << "' is not aligned to " << promised
                              << " bytes";
  }
  return address;
}

void Gemm::Launch(std::byte* const* buffers, std::byte* scratch, Stream stream) {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (bias_.has_value()) {
    lock.lock();
    const void* const bias = buffers[bias_->buffer] + bias_->offset;
    product_.Set(kLtBiasPointer, bias);
  }
  for (size_t i = 0; i < batch_.launches.size(); ++i) {
    CheckLt(Lt().matmul(TheLtHandle(), product_.get(), &alpha_, At(kB, i, buffers), b_layout_.get(),
                        At(kA, i, buffers), a_layout_.get(), &beta_, At(kAddend, i, buffers),
                        addend_layout_.get(), At(kC, i, buffers), c_layout_.get(), &chosen_.algorithm,
                        scratch, chosen_.workspace_nbytes, stream),
            "cublasLtMatmul");
  }
}

std::string Gemm::Implementation() const {
  const auto part = [this](const char* name, int attribute) -> std::string {
    int32_t value = 0;
    size_t written = 0;
    const int status =
        Lt().get_algorithm_config(&chosen_.algorithm, attribute, &value, sizeof(value), &written);
    return status == kSuccess ? name + std::to_string(value) + ", " : "";
  };
  std::string text = part("algorithm ", kLtAlgorithmId) + part("tile id ", kLtTileId) +
                     part("stages id ", kLtStagesId) + part("split-k ", kLtSplitK) + "workspace " +
                     std::to_string(chosen_.workspace_nbytes) + " bytes";
  const size_t launches = batch_.launches.size();
  return launches == 1 ? text : text + ", " + std::to_string(launches) + " launches";
}

}  // namespace

std::unique_ptr<Kernel> MakeGemm(const Program& program, size_t step) {
  const Step& made = program.steps[step];
  if (made.primitive != "gemm") {
    TVM_FFI_THROW(ValueError) << "cuBLASLt has no primitive '" << made.primitive << "'";
  }
  if (!made.post_ops.empty()) TVM_FFI_THROW(ValueError) << "cuBLASLt has no post-ops";
  return std::make_unique<Gemm>(made);
}

tvm::ffi::String DescribeCublas() { return "cuBLASLt " + std::to_string(Lt().get_version()); }

}  // namespace collage::cuda
