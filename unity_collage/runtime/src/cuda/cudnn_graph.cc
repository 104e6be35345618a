#include "cuda/cudnn_graph.h"

#include <tvm/ffi/error.h>

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/program_template.h"
#include "cuda/cudnn_plan.h"
#include "cuda/cudnn_steps.h"

namespace collage::cuda {
namespace {

// What each device has once. Only one thread at a time may use the handle and the plans. The handle is made
// with the first kernel, so never while a stream is captured.
struct Session {
  std::mutex mutex;
  DnnHandle handle = nullptr;
  // By signature: networks repeat their layers, and some plans compile a kernel. A plan lives as long as a
  // kernel uses it.
  std::map<std::string, std::weak_ptr<const DnnPlan>> plans;
  // The engines of the last graph, with its signature: a measuring process asks for one after the other.
  std::string last;
  std::unique_ptr<DnnEngines> engines;
};

Session& SessionOf(int device) {
  static std::mutex mutex;
  static auto* const sessions =
      new std::map<int, Session>;  // never destroyed: the driver may have ended before
  const std::lock_guard<std::mutex> lock(mutex);
  Session& session = (*sessions)[device];
  if (session.handle == nullptr) CheckDnn(Dnn().create(&session.handle), "cudnnCreate");
  return session;
}

int CurrentDevice() {
  int device = 0;
  Check(Runtime().get_device(&device), "cudaGetDevice");
  return device;
}

class GraphKernel final : public Kernel {
 public:
  GraphKernel(std::shared_ptr<const DnnGraph> graph, const DnnDemands& demands)
      : session_(SessionOf(CurrentDevice())), graph_(std::move(graph)), plan_(Chosen(demands)) {}

  size_t scratch_nbytes() const final { return plan_->workspace_nbytes; }

  void Launch(std::byte* const* buffers, std::byte* scratch, Stream stream) final {
    std::vector<void*> addresses = graph_->Addresses(buffers);
    addresses.push_back(plan_->workspace_nbytes == 0 ? nullptr : scratch);
    const std::lock_guard<std::mutex> lock(session_.mutex);
    if (!pack_.has_value() || addresses != packed_) Pack(std::move(addresses));
    CheckDnn(Dnn().set_stream(session_.handle, stream), "cudnnSetStream");
    CheckDnn(Dnn().execute(session_.handle, plan_->descriptor.get(), pack_->get()), "cudnnBackendExecute");
  }

  std::string Implementation() const final { return plan_->name; }

 private:
  std::shared_ptr<const DnnPlan> Chosen(const DnnDemands& demands) {
    const std::lock_guard<std::mutex> lock(session_.mutex);
    const std::string signature = graph_->signature() + (demands.exact ? "x" : "");
    std::weak_ptr<const DnnPlan>& known = session_.plans[signature + std::to_string(demands.algorithm)];
    std::shared_ptr<const DnnPlan> plan = known.lock();
    if (plan != nullptr) return plan;
    if (session_.engines == nullptr || session_.last != signature) {
      session_.engines =
          std::make_unique<DnnEngines>(graph_, DnnDevice{session_.handle, nullptr}, demands.exact);
      session_.last = signature;
    }
    plan = session_.engines->Plan(demands.algorithm);
    known = plan;
    return plan;
  }

  // `addresses` are those of the tensors, then that of the workspace.
  void Pack(std::vector<void*> addresses) {
    DnnDescriptor pack(dnn_kind::kVariantPack);
    pack.SetPointers(dnn_attr::kPackPointers, std::vector<void*>(addresses.begin(), addresses.end() - 1))
        .SetInts(dnn_attr::kPackIds, graph_->Ids())
        .SetPointers(dnn_attr::kPackWorkspace, {addresses.back()})
        .Finalize();
    pack_ = std::move(pack);
    packed_ = std::move(addresses);
  }

  Session& session_;
  const std::shared_ptr<const DnnGraph> graph_;
  const std::shared_ptr<const DnnPlan> plan_;
  // The addresses of the last call, and the variant pack that binds them: most calls have the addresses of
  // the call before.
  std::vector<void*> packed_;
  std::optional<DnnDescriptor> pack_;
};

std::string EngineOf(const Step& step, const DnnDevice& device) {
  try {
    const DnnDemands demands = DemandsOf(step);
    return DnnEngines(GraphOf(step), device, demands.exact).Plan(demands.algorithm)->name;
  } catch (const tvm::ffi::Error& error) {
    return error.message();
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeGraph(const Program& program, size_t step) {
  const Step& described = program.steps[step];
  return std::make_unique<GraphKernel>(GraphOf(described), DemandsOf(described));
}

tvm::ffi::String DescribeCudnn() {
  const size_t version = Dnn().get_version();  // 91900 is 9.19.0
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

tvm::ffi::String EnginesOfCudnn(const tvm::ffi::String& programs, const tvm::ffi::String& device) {
  DnnDescriptor properties(dnn_kind::kDeviceProperties);
  properties.SetText(dnn_attr::kDeviceJson, device).Finalize();
  std::string lines;
  // Nothing is read from the constants, so they may have any size.
  for (const ProgramTemplate& text : ParseTemplates(programs, std::numeric_limits<int64_t>::max())) {
    const Program program = text.At({});
    for (size_t i = 0; i < program.steps.size(); ++i) {
      lines += program.name + ", " + StepName(program, i) + ": " +
               EngineOf(program.steps[i], DnnDevice{nullptr, &properties}) + "\n";
    }
  }
  return lines;
}

}  // namespace collage::cuda
