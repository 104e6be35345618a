// The one thread pool: a team of workers that TVM's loops, our kernels and the libraries' OpenMP regions share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace collage {

// Threads that a parallel region may use; at first OMP_NUM_THREADS, or the cores that this process may use. No more than
// the calling thread's innermost ThreadLimit says.
int NumThreads();

// What the calling thread begins while this lives has so many threads at most; 0 is no limit.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  ~ThreadLimit();

 private:
  const int around_;
};

// Takes effect at the next call of any kernel, from whatever thread; throws when n < 1.
void SetNumThreads(int n);

// Where the calling thread stands in the parallel region that it runs; {0, 1} outside of all.
struct TeamPlace {
  int index = 0;
  int size = 1;
};
TeamPlace CurrentPlace();

// Whether the caller already runs inside a parallel region, where everything is serial.
bool InParallelRegion();

// What every thread of a region calls.
using Region = void (*)(void* data);

// A region in two halves, as compilers call it: the workers begin at once, the caller runs `region` itself in between.
// One region runs at a time: a caller waits until another thread's has ended. Inside a region, a team of one.
void BeginRegion(Region region, void* data, int threads);
void EndRegion();

// Waits until all threads of the current region are here.
void MeetTeam();

// What a thread does while it waits for others of its region: spins, then also lets other threads run.
class Patience {
 public:
  void Wait();

 private:
  int waited_ = 0;
};

// Calls body(place) on `threads` threads; serial inside a parallel region.
template <typename Body>
void OnTeam(int threads, const Body& body) {
  if (threads <= 1 || InParallelRegion()) {
    body(TeamPlace{});
    return;
  }
  const Region region = [](void* data) { (*static_cast<const Body*>(data))(CurrentPlace()); };
  void* data = const_cast<Body*>(&body);
  BeginRegion(region, data, threads);
  region(data);
  EndRegion();
}

// Calls body(i) for 0 <= i < n, a contiguous share on each of at most `threads` threads.
template <typename Body>
void ParallelFor(int64_t n, int threads, const Body& body) {
  OnTeam(static_cast<int>(std::min<int64_t>(threads, n)), [&](TeamPlace place) {
    const int64_t share = n / place.size, rest = n % place.size;
    const int64_t begin = share * place.index + std::min<int64_t>(place.index, rest);
    const int64_t end = begin + share + (place.index < rest ? 1 : 0);
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace collage
