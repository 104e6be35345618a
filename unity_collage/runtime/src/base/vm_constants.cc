#include "base/vm_constants.h"

#include <tvm/ffi/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace collage {
namespace {

// The first members of tvm::runtime::vm::VMExecutable in TVM 0.27. Its header comes with TVM, which the
// native libraries do not need where they are built.
struct Executable027 : tvm::ffi::ModuleObj {
  struct Function;
  std::vector<Function*> functions;  // of another type: all vectors have one layout
  std::unordered_map<std::string, int64_t> places;
  std::vector<tvm::ffi::Any> constants;
};

}  // namespace

std::vector<tvm::ffi::Any>* ConstantsOf(tvm::ffi::ModuleObj* module) {
  if (std::string_view(module->kind()) != "relax.VMExecutable") return nullptr;
  const auto stats = module->GetFunction("stats");
  if (!stats.has_value()) return nullptr;
  auto* constants = &static_cast<Executable027*>(module)->constants;
  // What TVM says about itself begins with the number of constants.
  const std::string expected = "  Constant pool (# " + std::to_string(constants->size()) + "): [";
  std::string said;
  try {
    said = (*stats)().cast<tvm::ffi::String>();
  } catch (const tvm::ffi::Error&) {  // it has no text for constants of some types
    return nullptr;
  }
  const size_t line = said.find('\n') + 1;  // 0 if there is one line only
  return line != 0 && said.compare(line, expected.size(), expected) == 0 ? constants : nullptr;
}

}  // namespace collage
