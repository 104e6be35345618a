// Parallel loops with work stealing: tasks are divided among the threads in advance, and a thread that has
// finished its own takes those that other threads have not begun.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/pool.h"

namespace collage {

// The tasks of one thread that have not begun, a range [begin, end). The owner takes them from the front,
// thieves from the back. Both ends are in one word, so that one compare-and-swap takes a task.
class alignas(64) TaskQueue {
 public:
  void Reset(int begin, int end) { left_.store(Packed(begin, end), std::memory_order_relaxed); }

  // The owner's next task, or -1 when none is left.
  int Pop() {
    return Take([](uint32_t* begin, uint32_t* /*end*/) { return (*begin)++; });
  }
  // A task for another thread, or -1 when none is left.
  int Steal() {
    return Take([](uint32_t* /*begin*/, uint32_t* end) { return --*end; });
  }

 private:
  static uint64_t Packed(uint32_t begin, uint32_t end) { return uint64_t{begin} << 32 | end; }

  template <typename Choose>
  int Take(const Choose& choose) {
    uint64_t left = left_.load(std::memory_order_relaxed);
    for (;;) {
      auto begin = static_cast<uint32_t>(left >> 32), end = static_cast<uint32_t>(left);
      if (begin >= end) return -1;
      const uint32_t taken = choose(&begin, &end);
      if (left_.compare_exchange_weak(left, Packed(begin, end), std::memory_order_relaxed)) {
        return static_cast<int>(taken);
      }
    }
  }

  std::atomic<uint64_t> left_{0};
};

// Calls body(task, rank) for 0 <= task < tasks. Each thread begins with a contiguous share of the tasks, so
// that its caches stay warm from call to call, and then steals from the others, its neighbour first. Serial
// inside a parallel region. Tasks do not wait for each other.
template <typename Body>
void ParallelTasks(int tasks, int threads, const Body& body) {
  threads = std::min(threads, tasks);
  const Alone alone(threads);
  if (threads <= 1 || alone || InParallelRegion()) {
    for (int task = 0; task < tasks; ++task) body(task, TeamRank{});
    return;
  }
  // For up to this many threads the queues are on the stack, and nothing is allocated.
  constexpr int kFewThreads = 32;
  TaskQueue few[kFewThreads];
  std::vector<TaskQueue> many(threads > kFewThreads ? threads : 0);
  TaskQueue* queues = many.empty() ? few : many.data();
  const auto bound = [&](int64_t i) { return static_cast<int>(tasks * i / threads); };
  for (int i = 0; i < threads; ++i) queues[i].Reset(bound(i), bound(i + 1));
  OnTeam(threads, [&](TeamRank rank) {
    for (int task; (task = queues[rank.index].Pop()) >= 0;) body(task, rank);
    // A region of fewer threads takes the tasks of the missing ones, too.
    for (int next = 1; next < threads; ++next) {
      TaskQueue& victim = queues[(rank.index + next) % threads];
      for (int task; (task = victim.Steal()) >= 0;) body(task, rank);
    }
  });
}

// Calls body(from, to, rank) for contiguous ranges of [0, n), several for each thread.
template <typename Body>
void ParallelRanges(int64_t n, int threads, const Body& body) {
  constexpr int kTasksPerThread = 4;
  const int64_t tasks = threads <= 1 ? 1 : std::min<int64_t>(n, int64_t{threads} * kTasksPerThread);
  ParallelTasks(static_cast<int>(tasks), threads,
                [&](int task, TeamRank rank) { body(n * task / tasks, n * (task + 1) / tasks, rank); });
}

}  // namespace collage
