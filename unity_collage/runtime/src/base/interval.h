// A percentile of samples and its confidence interval.
#pragma once

#include <vector>

namespace collage {

struct Interval {
  double low;
  double estimate;
  double high;

  // Half the width of the interval, as a share of the estimate.
  double Error() const { return (high - low) / (2 * estimate); }
};

// The interval between two order statistics, x_(l) and x_(u). Whatever the samples' distribution, the number
// B of n samples below the p-quantile q is binomial: B ~ Bin(n, p). Then q < x_(l) means B < l, and q > x_(u)
// means B >= u. So l is the largest rank with P(B < l) <= (1 - confidence) / 2, u the smallest with P(B >= u)
// <= (1 - confidence) / 2 (Hahn and Meeker, Statistical Intervals, 1991, section 5.2). Where samples are too
// few for such a rank, the interval ends at the extreme sample. `samples` is not empty, 0 < percentile < 100.
Interval PercentileInterval(std::vector<double> samples, double percentile, double confidence);

}  // namespace collage
