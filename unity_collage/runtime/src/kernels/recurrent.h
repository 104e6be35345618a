// One step of a recurrent cell: products of the state with packed weights, then the cell's functions, in one
// kernel.
//
// A unit is as many hidden numbers as stay in registers with all their gates. Weights lie unit by unit, and
// in it number by number of the state, so each thread reads its own from end to end: they, not arithmetic,
// are the time a step takes.
#pragma once

#include <cstdint>

namespace collage::kernels {

// ONNX's names: LSTM and RNN; a GRU that resets behind its product, and the two halves of one that resets
// before it: its gates, then its new state.
enum class Cell { kLstm, kRnn, kGru, kGruGates, kGruState };
constexpr int kCells = 5;

enum class Activation { kRelu, kSigmoid, kSoftsign, kTanh };

// Products that a hidden number needs.
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

// Vectors that a unit is wide: with few gates more, for sums that do not wait for each other.
constexpr int UnitVectors(Cell cell) { return GatesOf(cell) > 2 ? 2 : 4; }

// Everything of one step, from its first row; rows are so many floats apart.
struct CellStep {
  int64_t hidden;
  // Packed: [units][of the state][gates][vectors of a unit][lanes], zeros where there is no hidden number.
  const float* weights;
  // What is multiplied by them.
  const float* factor;
  int64_t factor_row;
  // The first gate that this kernel makes; one gate is `hidden` floats behind the other.
  const float* inputs;
  int64_t inputs_row;
  const float* state;
  int64_t state_row;
  float* result;
  int64_t result_row;
  // LSTM: its memory, changed in place. kGruGates writes how much of the state is kept here, and the state,
  // reset, as the result; kGruState reads it.
  float* memory;
  // Of the new state, behind its product; null for none.
  const float* bias;
  Activation functions[3];
};

struct RecurrentKernels {
  int lanes;

  // Rows [row, last_row) of the units [unit, last_unit).
  using Step = void (*)(const CellStep& step, int64_t row, int64_t last_row, int64_t unit, int64_t last_unit);
  Step steps[kCells];
};

}  // namespace collage::kernels
