// The one thread pool: OpenMP's, with the number of threads that the user asked for.
#pragma once

#include <cstdint>

namespace collage {

// Threads that a parallel region may use; at first what OpenMP chose (usable cores, or OMP_NUM_THREADS).
int NumThreads();

// Takes effect at the next call of any kernel, from whatever thread; throws when n < 1.
void SetNumThreads(int n);

// OpenMP keeps its number of threads per calling thread: a kernel call starts with this.
void AdoptNumThreads();

// Whether the caller already runs inside a parallel region, where everything is serial.
bool InParallelRegion();

// Calls body(i) for 0 <= i < n on at most `threads` threads; serial inside a parallel region.
template <typename Body>
void ParallelFor(int64_t n, int threads, const Body& body) {
  if (threads <= 1 || n <= 1 || InParallelRegion()) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; ++i) body(i);
}

}  // namespace collage
