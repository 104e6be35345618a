// Convolutions, poolings, normalisations and attention by cuDNN's graph API.
#pragma once

#include <tvm/ffi/string.h>

#include <memory>

#include "cuda/device_program.h"

namespace collage::cuda {

std::unique_ptr<Kernel> MakeGraph(const Program& program, size_t step);

// The version of the library, for the fingerprint of a measured cost; needs no device.
tvm::ffi::String DescribeCudnn();

// What would run each step of `programs`, or why nothing would, one line a step. `device` describes the
// device as the library's JSON of device properties, so this needs the library but no device.
tvm::ffi::String EnginesOfCudnn(const tvm::ffi::String& programs, const tvm::ffi::String& device);

}  // namespace collage::cuda
