// Work that is divided in advance and taken over by whoever is free.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/pool.h"

namespace collage {

// The pieces of one thread's share that nobody has begun: it takes them from the front, others from the back.
class alignas(64) Share {
 public:
  void Fill(int begin, int end) { left_.store(Packed(begin, end), std::memory_order_relaxed); }

  // The next piece, or -1 when none is left.
  int TakeFirst() {
    return Take([](uint32_t* begin, uint32_t* /*end*/) { return (*begin)++; });
  }
  int TakeLast() {
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

// Calls body(piece, place) for 0 <= piece < pieces: each thread has a contiguous share of the pieces, and then takes those
// that others have not begun, from the far end. Serial inside a parallel region.
template <typename Body>
void ParallelPieces(int pieces, int threads, const Body& body) {
  threads = std::min(threads, pieces);
  if (threads <= 1 || InParallelRegion()) {
    for (int piece = 0; piece < pieces; ++piece) body(piece, TeamPlace{});
    return;
  }
  // No allocation on the usual machine.
  constexpr int kFewThreads = 32;
  Share few[kFewThreads];
  std::vector<Share> many(threads > kFewThreads ? threads : 0);
  Share* shares = many.empty() ? few : many.data();
  const auto bound = [&](int64_t i) { return static_cast<int>(pieces * i / threads); };
  for (int i = 0; i < threads; ++i) shares[i].Fill(bound(i), bound(i + 1));
  OnTeam(threads, [&](TeamPlace place) {
    for (int piece; (piece = shares[place.index].TakeFirst()) >= 0;) body(piece, place);
    for (int next = 1; next < place.size; ++next) {
      Share& other = shares[(place.index + next) % place.size];
      for (int piece; (piece = other.TakeLast()) >= 0;) body(piece, place);
    }
  });
}

// Calls body(from, to, place) for contiguous parts of [0, n), some for each thread.
template <typename Body>
void ParallelRanges(int64_t n, int threads, const Body& body) {
  constexpr int kPiecesAThread = 4;
  const int64_t pieces = threads <= 1 ? 1 : std::min<int64_t>(n, int64_t{threads} * kPiecesAThread);
  ParallelPieces(static_cast<int>(pieces), threads, [&](int piece, TeamPlace place) {
    body(n * piece / pieces, n * (piece + 1) / pieces, place);
  });
}

}  // namespace collage
