// The choice of an engine for a graph of operations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda/cudnn_operations.h"

namespace collage::cuda {

// The requirements of a plan.
struct DnnDemands {
  // The position of the engine among those that can run the graph, in the order of the heuristics; 0 is the
  // first.
  int64_t algorithm = 0;
  // Whether products of float32 numbers must not be rounded to fewer bits (TensorFloat-32).
  bool exact = true;
};

struct DnnPlan {
  DnnDescriptor descriptor;
  size_t workspace_nbytes;
  // The engine and its knobs, for example "engine 38 (knobs 2=5 12=1), workspace 1.2 MiB".
  std::string name;
};

// The engines that can run a graph, found one after the other: making a plan may compile a kernel.
class DnnEngines {
 public:
  // `exact`: see DnnDemands. What `device` points to outlives the object.
  DnnEngines(std::shared_ptr<const DnnGraph> graph, const DnnDevice& device, bool exact);

  // The plan of engine number `algorithm`. Throws a RuntimeError with the number of engines that can run the graph, and
  // why another cannot, if there are too few.
  std::shared_ptr<const DnnPlan> Plan(int64_t algorithm);

 private:
  // Makes the plan of the next engine that can run the graph; returns whether there is one.
  bool Advance();
  std::optional<DnnPlan> Try(const DnnDescriptor& config);

  const std::shared_ptr<const DnnGraph> graph_;
  const DnnDevice device_;
  const bool exact_;
  const DnnDescriptor operations_;
  std::vector<std::shared_ptr<const DnnPlan>> plans_;
  // What the last asked mode of the heuristics recommends, which of it is next, and how many modes were
  // asked.
  std::vector<DnnDescriptor> recommended_;
  size_t next_ = 0, modes_ = 0;
  int planned_ = 0;
  // The names of the configurations that were tried: both modes may recommend the same one.
  std::set<std::string> tried_;
  std::string refusal_;
};

}  // namespace collage::cuda
