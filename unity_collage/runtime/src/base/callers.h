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

  // Whether one more caller should run its loop without a region, on its own thread. The answer stays true
  // for a while (kMemory) after there were many callers, since there will soon be many again: a region would
  // wake the workers, which would then spin on the cores of the other callers.
  bool AreMany(int threads) {
    if (now_.load(std::memory_order_relaxed) + 1 >= threads) {
      many_until_.store((Clock::now() + kMemory).time_since_epoch().count(), std::memory_order_relaxed);
      return true;
    }
    const Clock::rep until = many_until_.load(std::memory_order_relaxed);
    if (until == kNever) return false;
    if (Clock::now().time_since_epoch().count() < until) return true;
    many_until_.store(kNever, std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::chrono::milliseconds kMemory{3};
  static constexpr Clock::rep kNever = 0;

  alignas(kCacheLine) std::atomic<int> now_{0};
  std::atomic<Clock::rep> many_until_{kNever};
};

}  // namespace collage
