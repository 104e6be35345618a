// The workers of the pool. A region costs two transfers of a cache line per worker: one for its call, one for
// its end.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/callers.h"
#include "base/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace collage {
namespace {

using Clock = std::chrono::steady_clock;

// Microseconds pass between two kernels of a program. A worker sleeps when no call comes for this long.
constexpr std::chrono::milliseconds kSpin{1};
constexpr std::chrono::milliseconds kStoreDelay{1};  // a store is visible to all cores long before
constexpr std::chrono::hours kSleep{1};
constexpr std::chrono::seconds kRetry{1};  // until the system is asked for threads again
constexpr int kSpinsPerClockRead = 64;
constexpr int kSpinsBeforeClaim = 64;
constexpr int kSpinsBeforeYield = 4096;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether workers without a region sleep at once. The next region ends that.
std::atomic<bool> is_parked{false};

// The innermost region that the calling thread is in, and a list of the regions around it.
struct RegionState {
  TeamRank rank;
  bool in_region = false;
  bool in_team = false;     // this region or one around it has several threads
  bool leads_team = false;  // this thread began that region
  const RegionState* outer = nullptr;
  int threads = 1;  // that there are for its shares
};
thread_local RegionState region_state;

// A thread that runs one share of each region.
//
// The hand-over: the caller writes the region and raises called_, the worker claims that call, runs its share
// and sets ended_ to the call. A worker may be asleep, or its core may run another process. The caller that
// is done with its own share then claims the worker's share and runs it itself: a worker that has not begun
// delays no region.
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

  // The caller waits here, when its own share is done, until the worker's share is done too.
  void Finish() {
    const uint64_t call = called_.load(std::memory_order_relaxed);
    Backoff backoff;
    for (int spins = 0; ended_.load(std::memory_order_acquire) != call; ++spins) {
      // The caller does not claim at once: it would take the cache line of the claim from a worker that is
      // about to begin.
      if (spins >= kSpinsBeforeClaim && claimed_.load(std::memory_order_relaxed) != call && Claim(call)) {
        Run(call);
        return;
      }
      backoff.Wait();
    }
  }

 private:
  // A fence between the call and this load would cost every region a transfer. Without one, a worker that
  // falls asleep at this moment can be missed; WaitForCallAfter looks once more.
  void WakeIfAsleep() {
    if (!asleep_.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_one();
  }

  [[noreturn]] void Serve() {
    for (uint64_t last_call = 0;;) {
      last_call = WaitForCallAfter(last_call);
      if (Claim(last_call)) Run(last_call);
    }
  }

  // True for only one of the caller and the worker: each call is claimed once, and before the next one is
  // made.
  bool Claim(uint64_t call) {
    uint64_t before = call - 1;
    return claimed_.compare_exchange_strong(before, call, std::memory_order_acq_rel);
  }

  void Run(uint64_t call) {
    const RegionState own = region_state;
    region_state = {{index_, size_}, true, true};
    region_(data_);
    region_state = own;
    ended_.store(call, std::memory_order_release);
  }

  uint64_t WaitForCallAfter(uint64_t last_call) {
    const auto called = [&] { return called_.load(std::memory_order_acquire); };
    const Clock::time_point begin = Clock::now();
    do {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (called() != last_call) return called();
        Pause();
      }
    } while (!is_parked.load(std::memory_order_relaxed) && Clock::now() - begin < kSpin);
    const auto is_called = [&] { return called() != last_call; };
    std::unique_lock<std::mutex> lock(mutex_);
    asleep_.store(true);
    // A caller that has just missed the flag may never look again: it may wait for this worker inside the
    // region, as oneDNN's barriers do. So the worker checks once more when the call has become visible. Linux
    // could order the two at once (membarrier), but it takes milliseconds to register a process with threads.
    wake_.wait_for(lock, kStoreDelay, is_called);
    // wait() without a limit needs the C++ library of GCC 12, which systems with glibc 2.34 lack.
    while (!wake_.wait_for(lock, kSleep, is_called)) {
    }
    asleep_.store(false);
    return called();
  }

  const int index_;
  // One cache line, written by the caller.
  alignas(kCacheLine) std::atomic<uint64_t> called_{0};
  Region region_ = nullptr;
  void* data_ = nullptr;
  int size_ = 1;
  // Written by the thread that runs the share, mostly the worker.
  alignas(kCacheLine) std::atomic<uint64_t> ended_{0};
  alignas(kCacheLine) std::atomic<uint64_t> claimed_{0};
  alignas(kCacheLine) std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

// Where the threads of a region wait for each other. It is reusable: each use is a round of its own.
class Barrier {
 public:
  void Wait(int size) {
    const uint64_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    Backoff backoff;
    while (round_.load(std::memory_order_acquire) == round) backoff.Wait();
  }

 private:
  alignas(kCacheLine) std::atomic<int> arrived_{0};
  alignas(kCacheLine) std::atomic<uint64_t> round_{0};
};

class Team {
 public:
  // Returns the number of threads of the region. With `needs_all` there are `threads` shares in any case, and
  // the caller runs those that have no thread.
  int Begin(Region region, void* data, int threads, bool needs_all) {
    callers_.Add(1);
    region_mutex_.lock();
    if (is_parked.load(std::memory_order_relaxed)) is_parked.store(false, std::memory_order_relaxed);
    size_ = Grown(threads);
    for (int i = 0; i < size_ - 1; ++i) workers_[i].Call(region, data, needs_all ? threads : size_);
    return size_;
  }

  void End() {
    for (int i = 0; i < size_ - 1; ++i) workers_[i].Finish();
    region_mutex_.unlock();
    callers_.Add(-1);
  }

  Barrier& barrier() { return barrier_; }
  Callers& callers() { return callers_; }

 private:
  // Makes the workers that are missing for `threads` threads. Returns how many threads there are: fewer where
  // the system gives no more. Then it is asked again only after a while, since asking takes time.
  int Grown(int threads) {
    int there = static_cast<int>(workers_.size()) + 1;
    if (there >= threads || Clock::now() < next_try_) return std::min(threads, there);
    try {
      for (; there < threads; ++there) workers_.emplace_back(there);
    } catch (const std::exception&) {
      next_try_ = Clock::now() + kRetry;
    }
    return there;
  }

  Callers callers_;
  std::mutex region_mutex_;
  int size_ = 1;
  Clock::time_point next_try_{};
  std::deque<Worker> workers_;  // a deque, since the threads of the workers hold their addresses
  Barrier barrier_;
};

// A forked process has none of its parent's threads, so it begins with a new team. A team is never destroyed:
// its workers may outlive the library's static objects.
std::atomic<Team*> team{nullptr};

Team& GlobalTeam() {
  static const bool made = [] {
    team.store(new Team);
    pthread_atfork(nullptr, nullptr, [] { team.store(new Team); });
    return true;
  }();
  static_cast<void>(made);
  return *team.load(std::memory_order_relaxed);
}

}  // namespace

TeamRank CurrentRank() { return region_state.rank; }

bool InParallelRegion() { return region_state.in_team; }

namespace {

void Begin(Region region, void* data, int threads, bool needs_all) {
  const RegionState* outer = region_state.in_region ? new RegionState(region_state) : nullptr;
  const bool leads = threads > 1 && !region_state.in_team;
  const int there = leads ? GlobalTeam().Begin(region, data, threads, needs_all) : 1;
  const int size = leads && needs_all ? threads : there;
  region_state = {{0, size}, true, leads || region_state.in_team, leads, outer, there};
}

// Runs the shares of a region that have no thread, on the thread that began it.
void RunMissingShares(Region region, void* data) {
  if (!region_state.leads_team) return;
  for (int index = region_state.threads; index < region_state.rank.size; ++index) {
    region_state.rank.index = index;
    region(data);
  }
}

struct RegionEnd {
  ~RegionEnd() { EndRegion(); }
};

}  // namespace

void BeginRegion(Region region, void* data, int threads) { Begin(region, data, threads, false); }

void EndRegion() {
  if (region_state.leads_team) GlobalTeam().End();
  const RegionState* outer = region_state.outer;
  region_state = outer == nullptr ? RegionState() : *outer;
  delete outer;
}

void RunRegion(Region region, void* data, int threads) {
  Begin(region, data, threads, false);
  const RegionEnd end;
  region(data);
}

void RunAllShares(Region region, void* data, int threads) {
  Begin(region, data, threads, true);
  const RegionEnd end;
  region(data);
  RunMissingShares(region, data);
}

Alone::Alone(int threads)
    : is_alone_(threads > 1 && !region_state.in_region && GlobalTeam().callers().AreMany(threads)) {
  if (is_alone_) GlobalTeam().callers().Add(1);
}

Alone::~Alone() {
  if (is_alone_) GlobalTeam().callers().Add(-1);
}

void ParkWorkers() { is_parked.store(true, std::memory_order_relaxed); }

void WaitAtBarrier() {
  if (region_state.rank.size <= 1) return;
  if (region_state.threads < region_state.rank.size && region_state.leads_team) {
    std::fprintf(stderr, "collage: a region needs %d threads, and the system gives %d\n",
                 region_state.rank.size, region_state.threads);
    std::abort();  // as OpenMP's own runtime does: threads that do not exist never arrive
  }
  GlobalTeam().barrier().Wait(region_state.rank.size);
}

void Backoff::Wait() {
  Pause();
  if (++waited_ >= kSpinsBeforeYield) std::this_thread::yield();
}

}  // namespace collage
