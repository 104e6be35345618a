// What a backend compiles a program to.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/program.h"

namespace collage {

class Executable {
 public:
  virtual ~Executable() = default;

  // Runs all steps; arguments[i] is the data of argument i. May be called from several threads at once.
  virtual void Run(std::byte* const* arguments) = 0;

  // Which implementation the library chose for each step, one line a step.
  virtual std::string Implementations() = 0;

  // The bytes of the workspace that a run needs, for temporaries and scratch; 0 where it uses other memory.
  virtual size_t WorkspaceBytes() const { return 0; }
};

struct Backend {
  // The module kind, for example "collage.onednn".
  std::string kind;
  // Compiles a program for the current number of threads; `constants` outlives the result.
  std::unique_ptr<Executable> (*compile)(const Program& program, const std::byte* constants);
  // Where the tensors of a call are.
  DLDeviceType device = kDLCPU;
  // The most sizes that a function stays compiled for. Libraries cache the machine code of more primitives
  // themselves.
  size_t most_sizes = 256;
};

// Registers <kind>.create and ffi.Module.load_from_bytes.<kind>; `backend` lives as long as the process.
void RegisterBackend(const Backend& backend);

}  // namespace collage
