// How many threads use the pool at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

namespace collage {

constexpr size_t kCacheLine = 64;

// Counts the threads that run a region, or a loop without a region, at this moment.
class Callers {
  using Clock = std::chrono::steady_clock;

 public:
  void Add(int count) { now_.fetch_add(count, std::memory_order_relaxed); }

  // Whether one more caller should run its loop of `threads` threads without a region, on its own thread. The
  // answer stays true for a while (kMemory) after there were that many callers, since there will soon be many
  // again: a region would wake the workers, which would then spin on the cores of the other callers.
  bool AreMany(int threads) {
    if (now_.load(std::memory_order_relaxed) + 1 >= threads) {
      Remember(threads);
      return true;
    }
    return remembered_.load(std::memory_order_relaxed) >= threads && IsRemembered();
  }

 private:
  static constexpr std::chrono::milliseconds kMemory{3};

  static Clock::rep Now() { return Clock::now().time_since_epoch().count(); }

  // A larger number is not replaced as long as it is remembered. A thread that sees only one of the two
  // stores may choose the slower way for one loop.
  void Remember(int threads) {
    const Clock::rep now = Now();
    if (remembered_.load(std::memory_order_relaxed) > threads && now < until_.load(std::memory_order_relaxed))
      return;
    remembered_.store(threads, std::memory_order_relaxed);
    until_.store(now + Clock::duration(kMemory).count(), std::memory_order_relaxed);
  }

  bool IsRemembered() {
    if (Now() < until_.load(std::memory_order_relaxed)) return true;
    remembered_.store(0, std::memory_order_relaxed);
    return false;
  }

  alignas(kCacheLine) std::atomic<int> now_{0};
  // The threads of a loop that had as many callers, and until when that counts.
  std::atomic<int> remembered_{0};
  std::atomic<Clock::rep> until_{0};
};

}  // namespace collage
