// The one thread pool, shared by TVM's loops, our kernels and the libraries' OpenMP regions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace collage {

// Threads that a parallel region may use. The first value is TVM_NUM_THREADS, else OMP_NUM_THREADS, else that
// of base/cores.h. The calling thread's innermost ThreadLimit lowers it.
int NumThreads();

// While this object lives, regions that the calling thread begins use at most `threads` threads; 0 sets no
// limit.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  ~ThreadLimit();

 private:
  const int outer_limit_;
};

// Takes effect at the next call of a kernel, whichever thread calls it; throws when n < 1.
void SetNumThreads(int n);

// The calling thread's index in its parallel region, and the region's number of threads; {0, 1} outside.
struct TeamRank {
  int index = 0;
  int size = 1;
};
TeamRank CurrentRank();

// Whether the caller runs inside a parallel region. Regions that begin there are serial.
bool InParallelRegion();

// What every thread of a region calls.
using Region = void (*)(void* data);

// A region in two halves, as compilers call it: the workers begin at once, and the caller runs `region`
// itself between the two calls. One region runs at a time: a caller waits until another thread's region has
// ended. Inside a region, the team is the calling thread alone. A region has fewer shares where the system
// gives no more threads.
void BeginRegion(Region region, void* data, int threads);
void EndRegion();

// Runs `region` on the caller and the workers. The region also ends when the caller's share throws.
void RunRegion(Region region, void* data, int threads);

// The same with `threads` shares in any case: the caller also runs those for which there is no thread. For
// code that divides its work by a number of threads which it knows beforehand.
void RunAllShares(Region region, void* data, int threads);

// Decides whether a loop runs on the calling thread alone. It does when there are at least as many callers as
// the loop has threads, or there were a moment ago: then each caller has a core, and none waits for another.
// While the object lives, such a thread counts as a caller. Only loops with parts that do not wait for each
// other may do this.
class Alone {
 public:
  explicit Alone(int threads);
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone();
  explicit operator bool() const { return is_alone_; }

 private:
  const bool is_alone_;
};

// Lets the workers sleep at once instead of spinning until the next region: threads of another pool need the
// cores.
void ParkWorkers();

// Waits until all threads of the current region have called this.
void WaitAtBarrier();

// How a thread waits for others of its region: it spins, and after a while it yields its core each time.
class Backoff {
 public:
  void Wait();

 private:
  int waited_ = 0;
};

// Calls body(rank) on `threads` threads, or fewer where the system gives no more; serial inside a parallel
// region.
template <typename Body>
void OnTeam(int threads, const Body& body) {
  if (threads <= 1 || InParallelRegion()) {
    body(TeamRank{});
    return;
  }
  const Region region = [](void* data) { (*static_cast<const Body*>(data))(CurrentRank()); };
  RunRegion(region, const_cast<Body*>(&body), threads);
}

// Calls body(i) for 0 <= i < n, a contiguous share on each of at most `threads` threads. Calls do not wait
// for each other.
template <typename Body>
void ParallelFor(int64_t n, int threads, const Body& body) {
  threads = static_cast<int>(std::min<int64_t>(threads, n));
  const Alone alone(threads);
  OnTeam(alone ? 1 : threads, [&](TeamRank rank) {
    const int64_t share = n / rank.size, rest = n % rank.size;
    const int64_t begin = share * rank.index + std::min<int64_t>(rank.index, rest);
    const int64_t end = begin + share + (rank.index < rest ? 1 : 0);
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace collage
