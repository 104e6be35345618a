// Two kernels of our own for timing: one that waits, and one that does nothing.
#pragma once

#include <cstdint>

#include "cuda/runtime_api.h"

namespace collage::cuda {

// Keeps the stream busy for this many nanoseconds, so that what is enqueued meanwhile starts without a gap.
void LaunchWait(uint64_t nanoseconds, Stream stream);

// A kernel of one thread that returns at once.
void LaunchNothing(Stream stream);

}  // namespace collage::cuda
