#include "kernels/isa.h"
#include "kernels/vector_attention.h"
#include "kernels/vector_grouped.h"
#include "kernels/vector_recurrent.h"
#include "kernels/vector_winograd.h"

namespace collage::kernels {

constexpr Kernels kPlain = {
    "plain", kWinograd, {kLanes, GroupedRows}, Attention::Kernels(), RecurrentSteps()};

}  // namespace collage::kernels
