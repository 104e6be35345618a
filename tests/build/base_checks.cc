// Checks of the runtime's base that need C++: each is called by its name and returns whether it holds.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/callers.h"
#include "base/pool.h"
#include "base/work_stealing.h"
#include "base/workspace.h"

namespace {

using namespace collage;

// Two callers are enough for a loop of two threads. Loops of more threads are not affected.
bool FewCallersAreRemembered() {
  Callers callers;
  callers.Add(1);
  const bool now = callers.AreMany(2);
  callers.Add(-1);
  return now && !callers.AreMany(64);
}

bool ManyCallersAreRemembered() {
  Callers callers;
  for (int attempt = 0; attempt < 100; ++attempt) {  // the memory is short, and the machine may be busy
    callers.Add(5);
    const bool now = callers.AreMany(6), fewer = callers.AreMany(2);
    callers.Add(-5);
    if (now && fewer && callers.AreMany(6) && callers.AreMany(3)) return true;
  }
  return false;
}

int SizeOfTeam(int threads) {
  std::atomic<int> shares{0};
  OnTeam(threads, [&](TeamRank) { ++shares; });
  return shares;
}

// Without address space there is no stack for a new thread.
bool RegionsRunOnTheThreadsThereAre() {
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_AS, &none);
  std::atomic<int> tasks{0};
  const int alone = SizeOfTeam(4);
  ParallelTasks(100, 4, [&](int, TeamRank) { ++tasks; });
  // A library divides its work by the number of threads that it knows.
  std::atomic<int> shares{0};
  RunAllShares(
      [](void* shares) { static_cast<std::atomic<int>*>(shares)->fetch_or(1 << CurrentRank().index); },
      &shares, 4);
  setrlimit(RLIMIT_AS, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // the system is not asked again at once
  return alone == 1 && tasks == 100 && shares == 0b1111 && SizeOfTeam(4) == 4;
}

bool ARegionEndsWhenAShareThrows() {
  try {
    OnTeam(2, [](TeamRank rank) {
      if (rank.index == 0) throw std::runtime_error("the share of the caller");
    });
  } catch (const std::runtime_error&) {
    return !InParallelRegion() && SizeOfTeam(2) == 2;
  }
  return false;
}

size_t WorkspaceAfter(size_t nbytes) {
  {
    const Workspace workspace(nbytes);
  }
  return Workspace::Next().nbytes;
}

bool WorkspacesGrowByHalf() {
  constexpr size_t kMiB = 1 << 20;
  return WorkspaceAfter(kMiB) == kMiB && WorkspaceAfter(kMiB + 64) == kMiB + kMiB / 2 &&
         WorkspaceAfter(300 * kMiB) == 300 * kMiB && WorkspaceAfter(301 * kMiB) == 364 * kMiB;
}

constexpr struct {
  const char* name;
  bool (*holds)();
} kChecks[] = {
    {"few callers", FewCallersAreRemembered},
    {"many callers", ManyCallersAreRemembered},
    {"no more threads", RegionsRunOnTheThreadsThereAre},
    {"a share throws", ARegionEndsWhenAShareThrows},
    {"workspaces", WorkspacesGrowByHalf},
};

}  // namespace

int main(int count, char** names) {
  for (const auto& check : kChecks) {
    if (count == 2 && std::strcmp(names[1], check.name) == 0) return check.holds() ? 0 : 1;
  }
  return 2;
}
