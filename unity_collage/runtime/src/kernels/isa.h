// The kernels of each instruction set; at run time the best set of this processor is chosen.
#pragma once

#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/grouped.h"
#include "kernels/recurrent.h"
#include "kernels/winograd.h"

namespace collage::kernels {

// All kernels for one instruction set.
struct Kernels {
  const char* isa;
  WinogradAlgorithms winograd;
  GroupedKernels grouped;
  AttentionKernels attention;
  RecurrentKernels recurrent;
};

extern const Kernels kPlain;
extern const Kernels kAvx2;
extern const Kernels kAvx512;

// Names of the instruction sets that have kernels here and that this processor supports, the best first.
std::vector<std::string> RunnableIsas();

// The kernels for instruction set `isa`, or for the best one if `isa` is empty; throws when this processor
// does not support it.
const Kernels& FindKernels(const std::string& isa);

}  // namespace collage::kernels
