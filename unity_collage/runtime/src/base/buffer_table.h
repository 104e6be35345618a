// The addresses of a program's buffers during a call.
#pragma once

#include <memory>
#include <vector>

#include "base/context_pool.h"
#include "base/program.h"
#include "base/workspace.h"

namespace collage {

class BufferTable {
 public:
  // For calls that need `scratch` bytes in addition to their temporaries. `program` and `constants` outlive
  // the table.
  BufferTable(const Program& program, const std::byte* constants, size_t scratch = 0)
      : program_(program),
        constants_(constants),
        temporaries_(PlaceTemporaries(program)),
        workspace_(temporaries_.back() + scratch) {}

  size_t WorkspaceBytes() const { return workspace_; }

  // Calls body(buffers, scratch) with the address of each buffer and of the scratch. May be called from
  // several threads at once.
  template <typename Body>
  void With(std::byte* const* arguments, const Body& body) {
    const auto buffers = pool_.Take([this] { return Constants(); });
    const Workspace workspace(workspace_);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      if (program_.buffers[i].place == Place::kTemporary) buffers->at(i) = workspace.data() + temporaries_[i];
    }
    for (size_t i = 0; i < program_.arguments.size(); ++i) buffers->at(program_.arguments[i]) = arguments[i];
    body(buffers->data(), workspace.data() + temporaries_.back());
  }

 private:
  using Addresses = std::vector<std::byte*>;

  std::unique_ptr<Addresses> Constants() const {
    auto addresses = std::make_unique<Addresses>();
    for (const Buffer& buffer : program_.buffers) {
      // Constants are only read.
      addresses->push_back(
          buffer.place == Place::kConstant ? const_cast<std::byte*>(constants_) + buffer.where : nullptr);
    }
    return addresses;
  }

  const Program& program_;
  const std::byte* constants_;
  const std::vector<int64_t> temporaries_;
  const size_t workspace_;
  ContextPool<Addresses> pool_;
};

}  // namespace collage
