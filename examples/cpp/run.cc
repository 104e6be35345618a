// Runs a saved program without Python, on an input of ones: run PROGRAM.so 1x3x224x224 [LIBRARY ...]
//
// The libraries are those that register the program's modules, in this order: libtvm_runtime.so,
// libcollage_runtime.so, and those of the program's backends. docs/runtime.md says how to build and call it.
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::Tensor;

constexpr size_t kAlignment = 64;  // kernels read and write whole vectors

struct AlignedMemory {
  void AllocData(DLTensor* tensor) {
    const size_t nbytes = (tvm::ffi::GetDataSize(*tensor) + kAlignment - 1) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, nbytes);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

Tensor Ones(const std::string& sizes) {
  std::vector<int64_t> shape;
  std::istringstream stream(sizes);
  for (std::string size; std::getline(stream, size, 'x');) shape.push_back(std::stoll(size));
  constexpr DLDataType kFloat32{kDLFloat, 32, 1};
  Tensor tensor = Tensor::FromNDAlloc(AlignedMemory(), tvm::ffi::Shape(shape), kFloat32, {kDLCPU, 0});
  std::fill_n(static_cast<float*>(tensor.data_ptr()), tensor.numel(), 1.0f);
  return tensor;
}

long PeakKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stol(line.substr(6));
  }
  return 0;
}

// TVM's virtual machine with the program in it. The file is checked first, since the loader trusts every
// file.
Module Started(const std::filesystem::path& path) {
  const auto file = std::filesystem::absolute(path);  // the loader searches elsewhere for a bare name
  Function::GetGlobalRequired("collage.runtime.check_program")(file.string());
  constexpr int kFirst = 0, kPooled = 2;  // the first CPU, and memory that is kept for the next run
  const Module program = Module::LoadFromFile(file.string());
  Module machine = program->GetFunction("vm_load_executable").value()().cast<Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), kFirst, kPooled);
  return machine;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw std::invalid_argument("usage: run PROGRAM.so 1x3x224x224 [LIBRARY ...]");
  for (int i = 3; i < argc; ++i) {
    if (dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL) == nullptr) throw std::runtime_error(dlerror());
  }
  const Module machine = Started(argv[1]);
  const Tensor result = machine->GetFunction("main").value()(Ones(argv[2])).cast<Tensor>();
  // The monotonic clock of the machine: the process that started this one can compute how long it took.
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::cout << "first " << static_cast<const float*>(result.data_ptr())[0] << " of " << result.numel()
            << "\nclock " << std::setprecision(15) << std::chrono::duration<double>(now).count()
            << "\npeak " << PeakKilobytes() << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "run: " << error.what() << "\n";
  return 1;
}
