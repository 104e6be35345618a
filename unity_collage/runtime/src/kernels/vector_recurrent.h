// Recurrent cells for one instruction set; see recurrent.h.
#pragma once

#include "kernels/recurrent.h"
#include "kernels/vectors.h"

namespace collage::kernels {
namespace {

// How many rows are computed together: a vector of weights is read once for all of them.
#if defined(__AVX512F__)
constexpr int kMaxRows = 3;
#else
constexpr int kMaxRows = 1;
#endif

inline Vector Abs(Vector x) { return reinterpret_cast<Vector>(reinterpret_cast<Bits>(x) & 0x7FFFFFFF); }

// A quotient of polynomials of degree 13 and 6, with the coefficients of Eigen. Beyond the bounds, where tanh
// is 1 or -1 with an error below 3e-7, the result is that of the bounds.
inline Vector Tanh(Vector x) {
  x = Clip(x, -7.90531110763549805F, 7.90531110763549805F);
  const Vector square = x * x;
  Vector numerator = Broadcast(-2.76076847742355e-16F);
  for (const float term : {2.00018790482477e-13F, -8.60467152213735e-11F, 5.12229709037114e-08F,
                           1.48572235717979e-05F, 6.37261928875436e-04F, 4.89352455891786e-03F})
    numerator = numerator * square + term;
  Vector denominator = Broadcast(1.19825839466702e-06F);
  for (const float term : {1.18534705686654e-04F, 2.26843463243900e-03F, 4.89352518554385e-03F})
    denominator = denominator * square + term;
  return x * numerator / denominator;
}

inline Vector Activate(Activation activation, Vector x) {
  switch (activation) {
    case Activation::kRelu:
      return x < Vector{} ? Vector{} : x;
    case Activation::kSigmoid:
      return Sigmoid(x);
    case Activation::kSoftsign:
      return x / (1.0F + Abs(x));
    case Activation::kTanh:
      return Tanh(x);
  }
  return x;
}

template <Cell kCell>
struct Recurrent {
  static constexpr int kGates = GatesOf(kCell), kVectors = UnitVectors(kCell), kSums = kGates * kVectors;

  static void Step(const CellStep& step, int64_t row, int64_t last_row, int64_t unit, int64_t last_unit) {
    for (; unit < last_unit; ++unit) {
      int64_t at = row;
      for (; at + kMaxRows <= last_row; at += kMaxRows) Rows<kMaxRows>(step, at, unit);
      for (; at < last_row; ++at) Rows<1>(step, at, unit);
    }
  }

  template <int kRows>
  static void Rows(const CellStep& step, int64_t row, int64_t unit) {
    Vector sums[kRows][kSums];
    Multiply(step, row, unit, sums);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kVectors; ++j) {
        const int64_t at = (unit * kVectors + j) * kLanes;
        if (at < step.hidden) ApplyCell(step, row + i, at, sums[i] + j);
      }
    }
  }

  template <int kRows>
  static void Multiply(const CellStep& step, int64_t row, int64_t unit, Vector (&result)[kRows][kSums]) {
    const float* weights = step.weights + unit * step.hidden * kSums * kLanes;
    const float* factor = step.factor + row * step.factor_row;
    // Stays in registers: all loops are unrolled, and its address is not taken.
    Vector sums[kRows][kSums];
#pragma GCC unroll 3
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kSums; ++j) sums[i][j] = Vector{};
    }
    for (int64_t k = 0; k < step.hidden; ++k, weights += kSums * kLanes) {
      Vector factors[kRows];
#pragma GCC unroll 3
      for (int i = 0; i < kRows; ++i) factors[i] = LoadBroadcast(factor + i * step.factor_row + k);
#pragma GCC unroll 8
      for (int j = 0; j < kSums; ++j) {
        // Keeps the loads in the order of the memory: in another order they take twice as long from the
        // second-level cache.
        asm volatile("" ::: "memory");
        const Vector weight = Load(weights + j * kLanes);
#pragma GCC unroll 3
        for (int i = 0; i < kRows; ++i) sums[i][j] += factors[i] * weight;
      }
    }
#pragma GCC unroll 3
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kSums; ++j) result[i][j] = sums[i][j];
    }
  }

  // Computes one vector of a row, from element `at` on; the sums of its gates are kVectors apart.
  static void ApplyCell(const CellStep& step, int64_t row, int64_t at, const Vector* sums) {
    const int64_t count = step.hidden - at;
    const auto gate = [&](int number) {
      const float* inputs = step.inputs + row * step.inputs_row + number * step.hidden + at;
      return LoadPartial(inputs, count) + sums[number * kVectors];
    };
    const auto store = [&](Vector value) {
      StorePartial(step.result + row * step.result_row + at, value, count);
    };
    const Activation* functions = step.functions;
    float* carry = step.carry + row * step.hidden + at;
    if constexpr (kCell == Cell::kRnn) {
      store(Activate(functions[0], gate(0)));
    } else if constexpr (kCell == Cell::kLstm) {
      const Vector input_gate = Activate(functions[0], gate(0)),
                   output_gate = Activate(functions[0], gate(1)),
                   forget_gate = Activate(functions[0], gate(2)), candidate = Activate(functions[1], gate(3));
      const Vector cell_state = forget_gate * LoadPartial(carry, count) + input_gate * candidate;
      StorePartial(carry, cell_state, count);
      store(output_gate * Activate(functions[2], cell_state));
    } else {
      const Vector old = LoadPartial(step.state + row * step.state_row + at, count);
      const Vector bias = step.bias == nullptr ? Vector{} : LoadPartial(step.bias + at, count);
      if constexpr (kCell == Cell::kGruGates) {
        StorePartial(carry, Activate(functions[0], gate(0)), count);
        store(Activate(functions[0], gate(1)) * old);
      } else if constexpr (kCell == Cell::kGruState) {
        const Vector candidate = Activate(functions[1], gate(0) + bias);
        store(candidate + LoadPartial(carry, count) * (old - candidate));
      } else {
        const Vector update_gate = Activate(functions[0], gate(0)),
                     reset_gate = Activate(functions[0], gate(1));
        const float* inputs = step.inputs + row * step.inputs_row + 2 * step.hidden + at;
        const Vector product = sums[2 * kVectors] + bias;
        const Vector candidate = Activate(functions[1], LoadPartial(inputs, count) + reset_gate * product);
        store(candidate + update_gate * (old - candidate));
      }
    }
  }
};

constexpr RecurrentKernels RecurrentSteps() {
  return {kLanes,
          {Recurrent<Cell::kLstm>::Step, Recurrent<Cell::kRnn>::Step, Recurrent<Cell::kGru>::Step,
           Recurrent<Cell::kGruGates>::Step, Recurrent<Cell::kGruState>::Step}};
}

}  // namespace
}  // namespace collage::kernels
