// Matrix products by cuBLASLt.
#pragma once

#include <tvm/ffi/string.h>

#include <memory>

#include "cuda/device_program.h"

namespace collage::cuda {

std::unique_ptr<Kernel> MakeGemm(const Program& program, size_t step);

// The version of the library, for the fingerprint of a measured cost; needs no device.
tvm::ffi::String DescribeCublas();

}  // namespace collage::cuda
