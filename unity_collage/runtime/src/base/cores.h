// How many processors' worth of time this process may use.
#pragma once

#include <optional>
#include <string>

namespace collage {

// Every function reads files below `root`: "" stands for those of the machine itself.

// The cores that the calling thread may use. Hardware threads that share a core count as one.
int UsableCores(const std::string& root);

// How many processors' worth of time control groups allow (cpu.max, cpu.cfs_quota_us): the least limit of
// this process's group and those around it, or nothing where there is none.
std::optional<double> CpuQuota(const std::string& root);

// The number of threads where the environment does not set one: a thread for each usable core, but not more
// than the quota allows. The threads of a group that has used up its quota stop until the next period, in the
// middle of a region.
int ThreadsForCores(const std::string& root);

}  // namespace collage
