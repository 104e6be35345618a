#include "cuda/cudnn_plan.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

namespace collage::cuda {
namespace {

// cudnnBackendHeurMode_t: the library's recommendations, then engines that work for most graphs.
constexpr int kModeA = 3;
constexpr int kModeFallback = 2;

// cudnnBackendNumericalNote_t
constexpr int kTensorCore = 0;
constexpr int kDownConvertInputs = 1;
constexpr int kReducedPrecisionReduction = 2;
constexpr int kNondeterministic = 4;

constexpr size_t kKnobTypes = 44;  // CUDNN_KNOB_TYPE_COUNTS
// The most configurations that are finalized as plans: some of them compile a kernel.
constexpr int kMostPlans = 24;
constexpr int64_t kMostWorkspace = int64_t{256} << 20;

// The configurations of engines that one mode of the heuristics recommends, best first.
std::vector<DnnDescriptor> Recommended(const DnnDescriptor& graph, const DnnDevice& device, int mode) {
  DnnDescriptor heuristics(dnn_kind::kHeuristics);
  heuristics.SetDescriptor(dnn_attr::kHeuristicsGraph, graph)
      .SetEnum(dnn_attr::kHeuristicsMode, DnnType::kHeuristicsMode, mode);
  if (device.properties != nullptr) heuristics.SetDescriptor(dnn_attr::kHeuristicsDevice, *device.properties);
  heuristics.Finalize();
  return heuristics.GetDescriptors(dnn_attr::kHeuristicsResults, dnn_kind::kEngineConfig);
}

// "engine 38 (knobs 2=5 12=1)"
std::string NameOf(const DnnDescriptor& config, const DnnDescriptor& engine) {
  std::ostringstream name;
  name << "engine " << engine.GetInt(dnn_attr::kEngineIndex);
  const char* before = " (knobs ";
  const auto choices = config.GetDescriptors(dnn_attr::kConfigKnobChoices, dnn_kind::kKnobChoice, kKnobTypes);
  for (const DnnDescriptor& choice : choices) {
    name << before << choice.GetEnum(dnn_attr::kKnobType, DnnType::kKnobType) << "="
         << choice.GetInt(dnn_attr::kKnobValue);
    before = " ";
  }
  if (before[1] == '\0') name << ")";
  return name.str();
}

std::string SizeText(int64_t nbytes) {
  std::ostringstream text;
  text.precision(2);
  text << std::fixed << static_cast<double>(nbytes) / (1 << 20) << " MiB";
  return text.str();
}

// Why an engine must not be used, or "".
std::string WhyNot(const DnnDescriptor& engine, bool exact) {
  const std::vector<int> notes = engine.GetEnums(dnn_attr::kEngineNumericalNotes, DnnType::kNumericalNote);
  const auto has = [&notes](int note) { return std::find(notes.begin(), notes.end(), note) != notes.end(); };
  if (exact && (has(kTensorCore) || has(kDownConvertInputs)))
    return "it rounds float32 numbers to fewer bits";
  if (has(kReducedPrecisionReduction)) return "it adds up in fewer bits than float32";
  return has(kNondeterministic) ? "its results vary from run to run" : "";
}

DnnPlan Planned(const DnnDescriptor& config, const std::string& name, const DnnDevice& device) {
  DnnDescriptor plan(dnn_kind::kPlan);
  plan.SetDescriptor(dnn_attr::kPlanConfig, config);
  if (device.handle != nullptr) plan.SetHandle(dnn_attr::kPlanHandle, device.handle);
  if (device.properties != nullptr) plan.SetDescriptor(dnn_attr::kPlanDevice, *device.properties);
  plan.Finalize();
  const int64_t workspace = plan.GetInt(dnn_attr::kPlanWorkspace);
  if (workspace > kMostWorkspace) {
    TVM_FFI_THROW(RuntimeError) << "it needs " << SizeText(workspace) << " of workspace";
  }
  return DnnPlan{std::move(plan), static_cast<size_t>(workspace),
                 name + ", workspace " + SizeText(workspace)};
}

constexpr int kModes[] = {kModeA, kModeFallback};

}  // namespace

DnnEngines::DnnEngines(std::shared_ptr<const DnnGraph> graph, const DnnDevice& device, bool exact)
    : graph_(std::move(graph)), device_(device), exact_(exact), operations_(graph_->Finalized(device)) {}

std::shared_ptr<const DnnPlan> DnnEngines::Plan(int64_t algorithm) {
  const size_t wanted = static_cast<size_t>(algorithm) + 1;
  while (plans_.size() < wanted && Advance()) continue;
  if (plans_.size() < wanted) {
    TVM_FFI_THROW(RuntimeError) << "cuDNN has only " << plans_.size() << " engines for it, of " << tried_.size()
                                << " configurations" << (refusal_.empty() ? "" : ". The last that failed: ")
                                << refusal_;
  }
  return plans_[wanted - 1];
}

bool DnnEngines::Advance() {
  while (planned_ < kMostPlans) {
    if (next_ == recommended_.size()) {
      if (modes_ == std::size(kModes)) return false;
      recommended_.clear();
      next_ = 0;
      try {
        recommended_ = Recommended(operations_, device_, kModes[modes_++]);
      } catch (const tvm::ffi::Error& error) {
        refusal_ = error.message();
      }
      continue;
    }
    std::optional<DnnPlan> plan = Try(recommended_[next_++]);
    if (!plan.has_value()) continue;
    plans_.push_back(std::make_shared<const DnnPlan>(*std::move(plan)));
    return true;
  }
  return false;
}

std::optional<DnnPlan> DnnEngines::Try(const DnnDescriptor& config) {
  const DnnDescriptor engine = config.GetDescriptor(dnn_attr::kConfigEngine, dnn_kind::kEngine);
  const std::string name = NameOf(config, engine);
  if (!tried_.insert(name).second) return std::nullopt;
  const std::string reason = WhyNot(engine, exact_);
  if (!reason.empty()) {
    refusal_ = name + ": " + reason;
    return std::nullopt;
  }
  ++planned_;
  try {
    return Planned(config, name, device_);
  } catch (const tvm::ffi::Error& error) {
    refusal_ = name + ": " + error.message();
    return std::nullopt;
  }
}

}  // namespace collage::cuda
