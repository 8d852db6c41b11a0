#include "lab/bench/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace baton::lab::bench {
namespace {

// A value of n bits keeps its first 10: a bucket is at most 1/512 of its value wide, and its middle at most
// 1/1024 off.
constexpr int kBits = 10;
constexpr uint64_t kLinear = uint64_t{1} << kBits;
constexpr uint64_t kPerPower = kLinear / 2;

size_t BucketOf(uint64_t value) {
  if (value < kLinear) return value;
  const int shift = std::bit_width(value) - kBits;
  return kLinear + (shift - 1) * kPerPower + ((value >> shift) - kPerPower);
}

// The middle of the values of a bucket.
double MiddleOf(size_t bucket) {
  if (bucket < kLinear) return static_cast<double>(bucket);
  const uint64_t above = bucket - kLinear;
  const auto shift = static_cast<int>(above / kPerPower) + 1;
  const uint64_t low = (above % kPerPower + kPerPower) << shift;
  return static_cast<double>(low) + std::ldexp(1.0, shift) / 2;
}

// 1-based rank of the nearest-rank method.
int64_t Rank(double share, int64_t count) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share * static_cast<double>(count))), 1, count);
}

}  // namespace

double Samples::Percentile(double share) const {
  if (values_.empty()) return 0;
  if (sorted_ != values_.size()) {
    std::sort(values_.begin(), values_.end());
    sorted_ = values_.size();
  }
  return values_[Rank(share, count()) - 1];
}

double Samples::Mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

double Samples::Max() const {
  return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end());
}

void Histogram::Add(double seconds) {
  const double clamped = std::clamp(seconds, 0.0, 1e9);
  const size_t bucket = BucketOf(static_cast<uint64_t>(clamped * 1e9));
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
  ++count_;
  sum_ += clamped;
  max_ = std::max(max_, clamped);
}

double Histogram::Percentile(double share) const {
  if (count_ == 0) return 0;
  int64_t rank = Rank(share, count_);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    rank -= buckets_[bucket];
    if (rank <= 0) return std::min(max_, MiddleOf(bucket) * 1e-9);
  }
  return max_;
}

double Histogram::Mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

}  // namespace baton::lab::bench
