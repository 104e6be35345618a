#include "openblas/gemm.h"

#include <cblas.h>
#include <tvm/ffi/error.h>

#include <algorithm>

#include "base/dtype.h"
#include "base/pool.h"
#include "base/work_stealing.h"

namespace collage::openblas {
namespace {

// Products with fewer multiplications than this take less time than waking a second thread. A vector product
// is bound by memory, so a smaller one is worth dividing.
constexpr int64_t kMinParallelMatrixWork = 1 << 16;
constexpr int64_t kMinParallelVectorWork = 1 << 15;

// Blocks are multiples of the register tile of the kernels.
constexpr int64_t kBlock = 16;

const View& Need(const Step& step, const std::string& name) {
  const auto found = step.args.find(name);
  if (found == step.args.end()) TVM_FFI_THROW(ValueError) << "argument '" << name << "' is missing";
  if (DTypeName(found->second.dtype) != "float32") {
    TVM_FFI_THROW(ValueError) << "'" << name << "' is " << DTypeName(found->second.dtype)
                              << ", gemm takes float32";
  }
  return found->second;
}

// The bias with leading dims of 1, so that it has as many dims as c.
View WithRank(const View& bias, size_t rank) {
  View expanded = bias;
  while (expanded.dims.size() < rank) {
    expanded.dims.insert(expanded.dims.begin(), 1);
    expanded.strides.insert(expanded.strides.begin(), 0);
  }
  return expanded;
}

int64_t BroadcastStride(int64_t dim, int64_t stride, int64_t wanted) {
  if (dim != 1 && dim != wanted) TVM_FFI_THROW(ValueError) << "'bias' does not broadcast to 'c'";
  return dim == 1 ? 0 : stride;
}

CBLAS_TRANSPOSE Transposed(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

// Into how many blocks each product of a batch is cut: only one if the products of the batch alone keep all
// threads busy.
int64_t BlocksPerProduct(int64_t batch, int threads) {
  return batch % threads == 0 || batch >= 4 * threads ? 1 : threads;
}

int64_t BlockSize(int64_t length, int64_t blocks) {
  const int64_t even = (length + blocks - 1) / blocks;
  return std::min(length, (even + kBlock - 1) / kBlock * kBlock);
}

}  // namespace

void Multiply(const float* a, const float* b, float* c, int64_t rows, int64_t inner, int64_t cols) {
  const int threads = rows * inner * cols < kMinParallelMatrixWork ? 1 : NumThreads();
  const bool by_rows = rows > cols;
  const int64_t length = by_rows ? rows : cols, block = BlockSize(length, threads);
  const int lda = static_cast<int>(inner), ldb = static_cast<int>(cols);
  ParallelTasks(static_cast<int>((length + block - 1) / block), threads, [&](int task, TeamRank) {
    const int64_t first = task * block;
    const int size = static_cast<int>(std::min(block, length - first));
    if (rows == 1) {
      scipy_cblas_sgemv(CblasRowMajor, CblasTrans, lda, size, 1, b + first, ldb, a, 1, 0, c + first, 1);
    } else if (by_rows) {
      scipy_cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, ldb, lda, 1, a + first * inner, lda,
                        b, ldb, 0, c + first * cols, ldb);
    } else {
      scipy_cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(rows), size, lda, 1, a,
                        lda, b + first, ldb, 0, c + first, ldb);
    }
  });
}

Gemm::Gemm(const Step& step, int threads)
    : a_view_(Need(step, "a")),
      b_view_(Need(step, "b")),
      c_view_(Need(step, "c")),
      a_(AsMatrix("a", a_view_)),
      b_(AsMatrix("b", b_view_)),
      c_(AsMatrix("c", c_view_)),
      alpha_(step.attrs.FloatOr("alpha", 1)),
      beta_(step.attrs.FloatOr("beta", 0)) {
  if (step.args.count("bias") != 0) {
    const size_t rank = c_view_.dims.size();
    bias_view_ = WithRank(Need(step, "bias"), rank);
    if (bias_view_->dims.size() > rank) TVM_FFI_THROW(ValueError) << "'bias' has more dims than 'c'";
    bias_row_stride_ = BroadcastStride(bias_view_->dims[rank - 2], bias_view_->strides[rank - 2], c_.rows);
    bias_col_stride_ = BroadcastStride(bias_view_->dims[rank - 1], bias_view_->strides[rank - 1], c_.cols);
    beta_ = 1;
  }
  CheckShapes();
  MakeTasks(threads);
}

void Gemm::CheckShapes() const {
  if (c_.transposed) TVM_FFI_THROW(ValueError) << "the rows of 'c' are not contiguous";
  if (a_.rows != c_.rows || b_.cols != c_.cols || a_.cols != b_.rows) {
    TVM_FFI_THROW(ValueError) << "a " << a_.rows << "x" << a_.cols << " times b " << b_.rows << "x" << b_.cols
                              << " is not c " << c_.rows << "x" << c_.cols;
  }
}

void Gemm::MakeTasks(int threads) {
  const std::vector<int64_t> batch(c_view_.dims.begin(), c_view_.dims.end() - 2);
  const std::vector<int64_t> a = BatchOffsets("a", a_view_, batch), b = BatchOffsets("b", b_view_, batch);
  const std::vector<int64_t> c = BatchOffsets("c", c_view_, batch);
  const std::vector<int64_t> bias =
      bias_view_.has_value() ? BatchOffsets("bias", *bias_view_, batch) : std::vector<int64_t>(c.size(), 0);
  const int64_t count = static_cast<int64_t>(c.size());
  const int64_t products = count * c_.rows * c_.cols * a_.cols;
  threads_ = products < (IsVectorProduct() ? kMinParallelVectorWork : kMinParallelMatrixWork) ? 1 : threads;
  const int64_t blocks = BlocksPerProduct(count, threads_);
  const int64_t rows = c_.rows > c_.cols ? BlockSize(c_.rows, blocks) : c_.rows;
  const int64_t cols = c_.rows > c_.cols ? c_.cols : BlockSize(c_.cols, blocks);
  for (int64_t n = 0; n < count; ++n) {
    for (int64_t i = 0; i < c_.rows; i += rows) {
      for (int64_t j = 0; j < c_.cols; j += cols) {
        tasks_.push_back(Task{
            a[n] + i * a_.row_stride, b[n] + j * b_.col_stride, c[n] + i * c_.row_stride + j * c_.col_stride,
            bias[n] + i * bias_row_stride_ + j * bias_col_stride_,
            static_cast<int>(std::min(rows, c_.rows - i)), static_cast<int>(std::min(cols, c_.cols - j))});
      }
    }
  }
}

void Gemm::RunTasks(const Operands& operands) const {
  ParallelTasks(static_cast<int>(tasks_.size()), threads_,
                [&](int task, TeamRank) { RunTask(tasks_[task], operands); });
}

void Gemm::RunTask(const Task& task, const Operands& operands) const {
  float* c = operands.c + task.c;
  if (operands.bias != nullptr) FillWithBias(task, operands.bias + task.bias, c);
  Multiply(task, operands.a + task.a, operands.b + task.b, c);
}

void Gemm::FillWithBias(const Task& task, const float* bias, float* c) const {
  for (int i = 0; i < task.rows; ++i) {
    const float* from = bias + i * bias_row_stride_;
    float* to = c + static_cast<int64_t>(i) * c_.leading;
    if (bias_col_stride_ == 1) {
      std::copy_n(from, task.cols, to);
    } else {
      for (int j = 0; j < task.cols; ++j) to[j] = from[j * bias_col_stride_];
    }
  }
}

void Gemm::Multiply(const Task& task, const float* a, const float* b, float* c) const {
  const int inner = static_cast<int>(a_.cols);
  if (a_.rows == 1) {
    // A row times b is the transposed b times a column.
    const int b_rows = b_.transposed ? task.cols : inner, b_cols = b_.transposed ? inner : task.cols;
    scipy_cblas_sgemv(CblasRowMajor, Transposed(!b_.transposed), b_rows, b_cols, alpha_, b, b_.leading, a,
                      a_.transposed ? a_.leading : 1, beta_, c, 1);
  } else if (b_.cols == 1) {
    const int a_rows = a_.transposed ? inner : task.rows, a_cols = a_.transposed ? task.rows : inner;
    scipy_cblas_sgemv(CblasRowMajor, Transposed(a_.transposed), a_rows, a_cols, alpha_, a, a_.leading, b,
                      b_.leading, beta_, c, c_.leading);
  } else {
    scipy_cblas_sgemm(CblasRowMajor, Transposed(a_.transposed), Transposed(b_.transposed), task.rows,
                      task.cols, inner, alpha_, a, a_.leading, b, b_.leading, beta_, c, c_.leading);
  }
}

}  // namespace collage::openblas
