// The kernels by instruction set; which of them this processor runs is asked at run time.
#pragma once

#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/grouped.h"
#include "kernels/recurrent.h"
#include "kernels/winograd.h"

namespace collage::kernels {

// All that is compiled for one instruction set.
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

// Names of the instruction sets that there are kernels for and this processor has, the best first.
std::vector<std::string> RunnableIsas();

// The kernels for instruction set `isa`, or for the best one for ""; throws when this processor does not run
// them.
const Kernels& FindKernels(const std::string& isa);

}  // namespace collage::kernels
