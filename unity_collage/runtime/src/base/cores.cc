#include "base/cores.h"

#include <sched.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

namespace collage {
namespace {

using std::filesystem::path;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool Contains(const std::vector<std::string>& parts, const std::string& wanted) {
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

// A hierarchy of control groups that limits processors, as this process sees it.
struct Hierarchy {
  bool is_unified;  // version 2
  path root;        // which group is mounted: in a container, often the container's own
  path mount;       // where
};

// Lines of /proc/self/mountinfo are "ID PARENT DEVICE ROOT MOUNT OPTIONS [FIELDS...] - TYPE SOURCE OPTIONS".
std::vector<Hierarchy> Hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = Split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4) continue;
    const bool is_unified = dash[1] == "cgroup2";
    if (is_unified || (dash[1] == "cgroup" && Contains(Split(dash[3], ','), "cpu"))) {
      found.push_back({is_unified, fields[3], root + fields[4]});
    }
  }
  return found;
}

// Lines of /proc/self/cgroup are "ID:CONTROLLERS:PATH", without controllers for version 2.
path GroupOf(const Hierarchy& hierarchy, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (hierarchy.is_unified ? controllers.empty() : Contains(Split(controllers, ','), "cpu")) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

// The quota of a group in processors, or nothing where its files say "max" or -1: no limit.
std::optional<double> QuotaOf(const path& group, bool is_unified) {
  double quota = 0, period = 0;
  if (is_unified) {
    std::ifstream(group / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::optional<double> Less(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// The least quota of the mounted group, of this process's group, and of the groups between them. The files of
// groups above the mounted one cannot be seen, so their limits are not known.
std::optional<double> LeastQuota(const Hierarchy& hierarchy, const std::string& root) {
  std::optional<double> least = QuotaOf(hierarchy.mount, hierarchy.is_unified);
  const path inside = GroupOf(hierarchy, root).lexically_relative(hierarchy.root);
  path group = hierarchy.mount;
  for (const path& part : inside) {
    if (part == "..") break;  // the group is not below the mounted one
    group /= part;
    least = Less(least, QuotaOf(group, hierarchy.is_unified));
  }
  return least;
}

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  std::optional<double> least;
  for (const Hierarchy& hierarchy : Hierarchies(root)) least = Less(least, LeastQuota(hierarchy, root));
  return least;
}

int UsableCores(const std::string& root) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) {
    return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
  }
  std::set<std::string> cores;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &usable)) continue;
    const std::string name = "cpu" + std::to_string(processor);
    std::string siblings;
    std::ifstream(root + "/sys/devices/system/cpu/" + name + "/topology/thread_siblings_list") >> siblings;
    cores.insert(siblings.empty() ? name : siblings);
  }
  return std::max(static_cast<int>(cores.size()), 1);
}

int ThreadsForCores(const std::string& root) {
  const int cores = UsableCores(root);
  const std::optional<double> quota = CpuQuota(root);
  return quota && *quota < cores ? static_cast<int>(std::ceil(*quota)) : cores;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.usable_cores", [](const tvm::ffi::String& root) { return UsableCores(root); })
      .def("collage.runtime.threads_for_cores",
           [](const tvm::ffi::String& root) { return ThreadsForCores(root); })
      .def("collage.runtime.cpu_quota", [](const tvm::ffi::String& root) -> tvm::ffi::Optional<double> {
        const std::optional<double> quota = CpuQuota(root);
        return quota ? tvm::ffi::Optional<double>(*quota) : std::nullopt;
      });
}

}  // namespace collage
