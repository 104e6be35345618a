#include "base/interval.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cmath>

namespace collage {
namespace {

using tvm::ffi::Array;

// P(B = k) for B ~ Bin(n, p).
double BinomialMass(int64_t n, int64_t k, double p) {
  const double choices = std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
  return std::exp(choices + static_cast<double>(k) * std::log(p) +
                  static_cast<double>(n - k) * std::log1p(-p));
}

// The largest rank l >= 1 with P(B < l) <= tail, or 1.
int64_t LowerRank(int64_t n, double p, double tail) {
  double below = BinomialMass(n, 0, p);
  int64_t rank = 1;
  while (rank < n && below + BinomialMass(n, rank, p) <= tail) below += BinomialMass(n, rank++, p);
  return rank;
}

double Interpolated(const std::vector<double>& sorted, double p) {
  const double position = p * static_cast<double>(sorted.size() - 1);
  const size_t left = static_cast<size_t>(position);
  const size_t right = std::min(left + 1, sorted.size() - 1);
  return sorted[left] + (position - static_cast<double>(left)) * (sorted[right] - sorted[left]);
}

Array<double> IntervalOf(Array<double> samples, double percentile, double confidence) {
  if (samples.empty()) TVM_FFI_THROW(ValueError) << "a percentile needs at least one sample";
  if (!(0 < percentile && percentile < 100 && 0 < confidence && confidence < 1)) {
    TVM_FFI_THROW(ValueError) << "a percentile is between 0 and 100, a confidence between 0 and 1";
  }
  const Interval found =
      PercentileInterval(std::vector<double>(samples.begin(), samples.end()), percentile, confidence);
  return {found.low, found.estimate, found.high};
}

}  // namespace

Interval PercentileInterval(std::vector<double> samples, double percentile, double confidence) {
  std::sort(samples.begin(), samples.end());
  const int64_t n = static_cast<int64_t>(samples.size());
  const double p = percentile / 100, tail = (1 - confidence) / 2;
  // P(Bin(n, p) >= u) = P(Bin(n, 1 - p) < n - u + 1): the upper rank is the lower one, from the other end.
  const int64_t low = LowerRank(n, p, tail), high = n + 1 - LowerRank(n, 1 - p, tail);
  return Interval{samples[low - 1], Interpolated(samples, p), samples[high - 1]};
}

TVM_FFI_STATIC_INIT_BLOCK() { tvm::ffi::reflection::GlobalDef().def("collage.runtime.interval", IntervalOf); }

}  // namespace collage
