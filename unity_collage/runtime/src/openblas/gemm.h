// c = alpha * a @ b + beta * c, or alpha * a @ b + bias: one step, cut into tasks for the pool.
#pragma once

#include <optional>
#include <vector>

#include "base/program.h"
#include "openblas/layout.h"

namespace collage::openblas {

// c = a @ b of whole matrices in row-major order, cut into tasks for the pool.
void Multiply(const float* a, const float* b, float* c, int64_t rows, int64_t inner, int64_t cols);

class Gemm {
 public:
  // Cuts the work for `threads` threads.
  Gemm(const Step& step, int threads);

  // data(buffer) is the address of a buffer's first byte in this call.
  template <typename Data>
  void Run(const Data& data) const {
    const Operands operands{At(a_view_, data), At(b_view_, data), At(c_view_, data),
                            bias_view_.has_value() ? At(*bias_view_, data) : nullptr};
    RunTasks(operands);
  }

  bool IsVectorProduct() const { return a_.rows == 1 || b_.cols == 1; }
  size_t NumTasks() const { return tasks_.size(); }

 private:
  struct Operands {
    const float* a;
    const float* b;
    float* c;
    const float* bias;
  };
  // A block of one c of the batch; offsets in elements.
  struct Task {
    int64_t a, b, c, bias;
    int rows, cols;
  };

  template <typename Data>
  static float* At(const View& view, const Data& data) {
    return reinterpret_cast<float*>(data(view.buffer) + view.offset);
  }

  void CheckShapes() const;
  void MakeTasks(int threads);
  void RunTasks(const Operands& operands) const;
  void RunTask(const Task& task, const Operands& operands) const;
  void FillWithBias(const Task& task, const float* bias, float* c) const;
  void Multiply(const Task& task, const float* a, const float* b, float* c) const;

  View a_view_, b_view_, c_view_;
  std::optional<View> bias_view_;
  Matrix a_, b_, c_;
  int64_t bias_row_stride_ = 0, bias_col_stride_ = 0;
  float alpha_, beta_;
  int threads_;
  std::vector<Task> tasks_;
};

}  // namespace collage::openblas
