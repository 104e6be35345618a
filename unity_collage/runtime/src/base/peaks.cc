// The highest rates at which one thread can compute, read and write: the best of many trials. They are so
// short that some are not interrupted even on a busy machine.
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/vector_loops.h"

namespace collage {
namespace {

using Clock = std::chrono::steady_clock;

// About 20 us: a thousand times as long as reading the clock, and a hundredth of a scheduler's time slice.
constexpr int64_t kTrialRounds = 20'000;
constexpr int64_t kTrialBytes = 1 << 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The highest rate of `trial` in about `seconds`; a trial returns its amount of work. `prepare` is not timed.
template <typename Prepare, typename Trial>
double BestRate(double seconds, const Prepare& prepare, const Trial& trial) {
  const Clock::time_point begin = Clock::now();
  double best = 0;
  do {
    prepare();
    const Clock::time_point start = Clock::now();
    const int64_t done = trial();
    best = std::max(best, static_cast<double>(done) / SecondsSince(start));
  } while (SecondsSince(begin) < seconds);
  return best;
}

// A buffer of zeros with a whole number of blocks. A loop passes over it part by part, and starts again at
// its end.
class Ring {
 public:
  explicit Ring(int64_t nbytes)
      : nbytes_(nbytes / VectorLoops::kBlock * VectorLoops::kBlock), buffer_(static_cast<size_t>(nbytes_)) {
    std::memset(buffer_.data(), 0, buffer_.nbytes());
  }

  // Runs loop(data, part) over at least the next `nbytes` bytes; returns how many they were.
  template <typename Loop>
  int64_t Run(int64_t nbytes, const Loop& loop) {
    int64_t done = 0;
    while (done < nbytes) {
      const int64_t part = std::min(nbytes_ - next_, nbytes / VectorLoops::kBlock * VectorLoops::kBlock);
      loop(reinterpret_cast<float*>(buffer_.data() + next_), part);
      next_ = (next_ + part) % nbytes_;
      done += part;
    }
    return done;
  }

  int64_t nbytes() const { return nbytes_; }

 private:
  int64_t nbytes_;
  AlignedBuffer buffer_;
  int64_t next_ = 0;
};

constexpr auto kNothing = [] {};

double PeakFlops(double seconds) {
  return BestRate(seconds, kNothing, [] { return BestVectorLoops().multiply_add(kTrialRounds); });
}

// Bytes per second when a buffer of `nbytes` is read again and again.
double PeakRead(int64_t nbytes, double seconds) {
  Ring ring(nbytes);
  return BestRate(seconds, kNothing, [&] { return ring.Run(kTrialBytes, BestVectorLoops().read); });
}

// Bytes per second when a buffer of `nbytes` is read once, after `evict_bytes` of other memory were written.
double PeakReadEvicted(int64_t nbytes, int64_t evict_bytes, double seconds) {
  Ring data(nbytes), other(evict_bytes);
  return BestRate(
      seconds, [&] { other.Run(other.nbytes(), BestVectorLoops().write); },
      [&] { return data.Run(data.nbytes(), BestVectorLoops().read); });
}

// Bytes per second when a buffer of `nbytes` is written again and again.
double PeakWrite(int64_t nbytes, double seconds) {
  Ring ring(nbytes);
  return BestRate(seconds, kNothing, [&] { return ring.Run(kTrialBytes, BestVectorLoops().write); });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.runtime.peak_flops", PeakFlops)
      .def("collage.runtime.peak_read", PeakRead)
      .def("collage.runtime.peak_read_evicted", PeakReadEvicted)
      .def("collage.runtime.peak_write", PeakWrite);
}

}  // namespace
}  // namespace collage
