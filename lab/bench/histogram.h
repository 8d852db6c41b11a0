// Samples and Histogram: the statistics of a load test. Samples keeps every value and is exact; Histogram
// counts millions of values in constant memory, within 0.1%. Percentiles are by nearest rank: the smallest
// value with at least that share of all values at or below it. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton::lab::bench {

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  int64_t count() const { return static_cast<int64_t>(values_.size()); }
  // 0 without values. `share` in [0, 1].
  double Percentile(double share) const;
  double Mean() const;
  double Max() const;

 private:
  mutable std::vector<double> values_;
  mutable size_t sorted_ = 0;
};

// Seconds, from a nanosecond up; shorter is counted as 0. Buckets are linear between powers of two.
class Histogram {
 public:
  void Add(double seconds);
  int64_t count() const { return count_; }
  double Percentile(double share) const;
  double Mean() const;
  double Max() const { return max_; }

 private:
  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
};

}  // namespace baton::lab::bench
