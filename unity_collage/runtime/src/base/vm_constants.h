// The constants of executables of TVM's virtual machine.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/extra/module.h>

#include <vector>

namespace collage {

// The constants of an executable, which live as long as it does; null for other modules, and where the class
// of executables is not the one that this file was written for. TVM has no function for them.
std::vector<tvm::ffi::Any>* ConstantsOf(tvm::ffi::ModuleObj* module);

}  // namespace collage
