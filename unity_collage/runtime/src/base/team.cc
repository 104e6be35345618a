// The workers of the pool. A region costs two transfers of a cache line per worker: its call, and its word that it ended.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace collage {
namespace {

using Clock = std::chrono::steady_clock;

// Between two kernels of a program lie microseconds. A worker that was not called for longer frees its core.
constexpr std::chrono::milliseconds kSpin{1};
constexpr std::chrono::milliseconds kSettled{1};  // a store is visible to all cores long before
constexpr int kSpinsPerLook = 64;  // at the clock
constexpr int kSpinsBeforeClaim = 64;
constexpr int kSpinsBeforeYield = 4096;
constexpr size_t kCacheLine = 64;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Where the calling thread stands: the innermost of the regions that it is in, and those around it.
struct Standing {
  TeamPlace place;
  bool in_region = false;
  bool in_team = false;     // a region of several threads is around
  bool leads_team = false;  // and this thread has called the others
  const Standing* around = nullptr;
};
thread_local Standing standing;

// Runs one share of each region, unless the caller was faster: a worker that sleeps, or whose core is taken by another
// process, holds nobody up before it has begun.
class Worker {
 public:
  explicit Worker(int index) : index_(index), thread_([this] { Serve(); }) { thread_.detach(); }

  void Call(Region region, void* data, int size) {
    region_ = region;
    data_ = data;
    size_ = size;
    called_.store(called_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    WakeIfAsleep();
  }

  // For the caller, when its own share is done: until the worker's is done too, by whomever.
  void Finish() {
    const uint64_t call = called_.load(std::memory_order_relaxed);
    Patience patience;
    for (int spins = 0; ended_.load(std::memory_order_acquire) != call; ++spins) {
      // Not at once: the line of the claim stays with a worker that is on its way.
      if (spins >= kSpinsBeforeClaim && claimed_.load(std::memory_order_relaxed) != call && Claim(call)) {
        Run(call);
        return;
      }
      patience.Wait();
    }
  }

 private:
  // Without a fence between the call and this look, which would cost every region a transfer, a worker that falls asleep
  // just now can be missed: it looks once more by itself.
  void WakeIfAsleep() {
    if (!asleep_.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_one();
  }

  [[noreturn]] void Serve() {
    for (uint64_t known = 0;;) {
      known = AwaitCallAfter(known);
      if (Claim(known)) Run(known);
    }
  }

  // Each call is claimed once, and before the next one is made.
  bool Claim(uint64_t call) {
    uint64_t before = call - 1;
    return claimed_.compare_exchange_strong(before, call, std::memory_order_acq_rel);
  }

  void Run(uint64_t call) {
    const Standing own = standing;
    standing = {{index_, size_}, true, true};
    region_(data_);
    standing = own;
    ended_.store(call, std::memory_order_release);
  }

  uint64_t AwaitCallAfter(uint64_t known) {
    const auto called = [&] { return called_.load(std::memory_order_acquire); };
    const Clock::time_point begin = Clock::now();
    do {
      for (int i = 0; i < kSpinsPerLook; ++i) {
        if (called() != known) return called();
        Pause();
      }
    } while (Clock::now() - begin < kSpin);
    const auto is_called = [&] { return called() != known; };
    std::unique_lock<std::mutex> lock(mutex_);
    asleep_.store(true);
    // A caller that has just missed the flag does not come back: a region may wait for this worker by means of its own,
    // as oneDNN's barriers do. So one more look when its call is visible for certain.
    if (!wake_.wait_for(lock, kSettled, is_called)) wake_.wait(lock, is_called);
    asleep_.store(false);
    return called();
  }

  const int index_;
  // Written by the caller, one line.
  alignas(kCacheLine) std::atomic<uint64_t> called_{0};
  Region region_ = nullptr;
  void* data_ = nullptr;
  int size_ = 1;
  // Written by the worker.
  alignas(kCacheLine) std::atomic<uint64_t> ended_{0};
  alignas(kCacheLine) std::atomic<uint64_t> claimed_{0};
  alignas(kCacheLine) std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

// Where the threads of a region meet; reusable, because the round counts up.
class Meeting {
 public:
  void Wait(int size) {
    const uint64_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    Patience patience;
    while (round_.load(std::memory_order_acquire) == round) patience.Wait();
  }

 private:
  alignas(kCacheLine) std::atomic<int> arrived_{0};
  alignas(kCacheLine) std::atomic<uint64_t> round_{0};
};

class Team {
 public:
  void Begin(Region region, void* data, int size) {
    leading_.lock();
    size_ = size;
    for (int index = static_cast<int>(workers_.size()) + 1; index < size; ++index) workers_.emplace_back(index);
    for (int i = 0; i < size - 1; ++i) workers_[i].Call(region, data, size);
  }

  void End() {
    for (int i = 0; i < size_ - 1; ++i) workers_[i].Finish();
    leading_.unlock();
  }

  Meeting& meeting() { return meeting_; }

 private:
  std::mutex leading_;
  int size_ = 1;
  std::deque<Worker> workers_;  // never moved: their threads know where they are
  Meeting meeting_;
};

// A child process has none of its parent's threads: it begins with a team of its own. Never destroyed, as the workers
// may outlive the library's static objects.
std::atomic<Team*> team{nullptr};

Team& TheTeam() {
  static const bool made = [] {
    team.store(new Team);
    pthread_atfork(nullptr, nullptr, [] { team.store(new Team); });
    return true;
  }();
  static_cast<void>(made);
  return *team.load(std::memory_order_relaxed);
}

}  // namespace

TeamPlace CurrentPlace() { return standing.place; }

bool InParallelRegion() { return standing.in_team; }

void BeginRegion(Region region, void* data, int threads) {
  const Standing* around = standing.in_region ? new Standing(standing) : nullptr;
  const bool leads = threads > 1 && !standing.in_team;
  standing = {{0, leads ? threads : 1}, true, leads || standing.in_team, leads, around};
  if (leads) TheTeam().Begin(region, data, threads);
}

void EndRegion() {
  if (standing.leads_team) TheTeam().End();
  const Standing* around = standing.around;
  standing = around == nullptr ? Standing() : *around;
  delete around;
}

void MeetTeam() {
  if (standing.place.size > 1) TheTeam().meeting().Wait(standing.place.size);
}

void Patience::Wait() {
  Pause();
  if (++waited_ >= kSpinsBeforeYield) std::this_thread::yield();
}

}  // namespace collage
