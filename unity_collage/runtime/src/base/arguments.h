// Checks the tensors of a call against the program's buffers.
#pragma once

#include <tvm/ffi/function.h>

#include <cstddef>
#include <string>

#include "base/program.h"

namespace collage {

constexpr size_t kMaxArguments = 64;

// Writes the address of each tensor's first element to `pointers`, or throws and names the argument. All
// tensors are on a device of this type.
void CheckArguments(const Program& program, tvm::ffi::PackedArgs args, DLDeviceType device,
                    std::byte** pointers);

// Argument `position` of the function `name`, or throws unless it is a dense tensor in the memory of the CPU.
DLTensor* DenseTensor(const std::string& name, size_t position, const tvm::ffi::AnyView& argument);

int64_t NumBytes(const DLTensor& tensor);

}  // namespace collage
