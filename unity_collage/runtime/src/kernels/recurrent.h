// One step of a recurrent cell: products of the state with packed weights, then the cell's functions.
//
// A unit is a number of hidden elements that fits into registers with all its gates. Weights are packed unit
// by unit, and inside a unit in the order of the state's elements. So a thread reads the weights of its units
// from end to end. How long a step takes depends on reading them, not on arithmetic.
#pragma once

#include <cstdint>

namespace collage::kernels {

// LSTM, RNN and GRU as ONNX defines them. kGru resets the state after its product. A GRU that resets before
// the product is computed in two phases: its gates, then its new state.
enum class Cell { kLstm, kRnn, kGru, kGruGates, kGruState };
constexpr int kCells = 5;

enum class Activation { kRelu, kSigmoid, kSoftsign, kTanh };

// Products for each hidden element.
constexpr int GatesOf(Cell cell) {
  switch (cell) {
    case Cell::kLstm:
      return 4;
    case Cell::kGru:
      return 3;
    case Cell::kGruGates:
      return 2;
    default:
      return 1;
  }
}

// Vectors of a unit: more if there are few gates, for enough independent sums.
constexpr int UnitVectors(Cell cell) { return GatesOf(cell) > 2 ? 2 : 4; }

// The tensors of one step; *_row is the distance of rows in floats.
struct CellStep {
  int64_t hidden;
  // Packed as [units][hidden][gates][vectors of a unit][lanes], with zeros behind the last hidden element.
  const float* weights;
  // The left factor of the products: the state, or the state after the reset.
  const float* factor;
  int64_t factor_row;
  // The inputs' part of the gates, from the first gate of this kernel; gates are `hidden` floats apart.
  const float* inputs;
  int64_t inputs_row;
  const float* state;
  int64_t state_row;
  float* result;
  int64_t result_row;
  // The cell state of an LSTM, updated in place. kGruGates writes its update gate here, for kGruState, and
  // the state after the reset to `result`.
  float* carry;
  // Added to the product of a GRU's new state; null for none.
  const float* bias;
  Activation functions[3];
};

struct RecurrentKernels {
  int lanes;

  // Computes rows [row, last_row) of the units [unit, last_unit).
  using Step = void (*)(const CellStep& step, int64_t row, int64_t last_row, int64_t unit, int64_t last_unit);
  Step steps[kCells];
};

}  // namespace collage::kernels
