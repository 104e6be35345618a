#include "base/calm.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/call.h"
#include "base/pool.h"

namespace collage {
namespace {

// How long each thread computes to show that it has a core: longer than the caller waits before it takes over
// the share of a thread that has not begun.
constexpr double kPresenceSeconds = 10e-6;
// A thread that sleeps wakes up within this time if a core is free.
constexpr double kWakingSeconds = 300e-6;
constexpr std::chrono::milliseconds kPause{1};
// The share of a run's time for which its threads may wait for a core.
constexpr double kNotable = 0.02;
// How long a preempted thread waits, where the system does not say: a time slice.
constexpr int64_t kSliceNs = 1'000'000;

// Whether each thread of the pool runs its own share of a region.
bool AllPresent() {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> absent{0};
  OnTeam(NumThreads(), [&](TeamRank rank) {
    if (rank.index > 0 && std::this_thread::get_id() == caller) {
      ++absent;
      return;
    }
    const Clock::time_point begin = Clock::now();
    while (SecondsSince(begin) < kPresenceSeconds) {
    }
  });
  return absent == 0;
}

bool AllWake() {
  const Clock::time_point begin = Clock::now();
  do {
    if (AllPresent()) return true;
  } while (SecondsSince(begin) < kWakingSeconds);
  return false;
}

// How often the system has taken a core from a thread of this process.
int64_t Preemptions() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

// The nanoseconds that a thread was ready to run and had no core: the second number of its schedstat.
std::optional<int64_t> WaitedNs(const char* task) {
  const std::string path = std::string("/proc/self/task/") + task + "/schedstat";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char text[64];
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';
  const char* second = std::strchr(text, ' ');
  if (second == nullptr) return std::nullopt;
  return std::strtoll(second, nullptr, 10);
}

// The sum for all threads of this process. Where the system does not tell these times, each preemption counts
// as a time slice.
int64_t WaitedNs() {
  int64_t total = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return Preemptions() * kSliceNs;
  while (const dirent* task = readdir(tasks)) {
    if (std::isdigit(static_cast<unsigned char>(task->d_name[0])) == 0) continue;
    const std::optional<int64_t> waited = WaitedNs(task->d_name);
    if (!waited) {
      total = Preemptions() * kSliceNs;
      break;
    }
    total += *waited;
  }
  closedir(tasks);
  return total;
}

}  // namespace

bool Calm::Await(double seconds) {
  const Clock::time_point begin = Clock::now();
  bool calm = AllWake();
  while (!calm && SecondsSince(begin) < seconds) {
    std::this_thread::sleep_for(kPause);  // other work ends sooner while this thread sleeps
    calm = AllWake();
  }
  const int64_t before = Preemptions();
  if (before != preemptions_) {  // reading the times of all threads takes far longer than counting
    preemptions_ = before;
    waited_ns_ = WaitedNs();
  }
  return calm;
}

bool Calm::Lasted(double seconds) {
  const bool present = AllWake();
  const int64_t now = Preemptions();
  if (now == preemptions_) return present;
  preemptions_ = now;
  const int64_t waited = WaitedNs() - waited_ns_;
  waited_ns_ += waited;
  return present && static_cast<double>(waited) * 1e-9 <= kNotable * seconds;
}

}  // namespace collage
