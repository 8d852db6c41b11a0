#include "engine/kv/index/reuse_forecast.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace baton::kv {
namespace {

// Counts are multiplied by it at each round of learning.
constexpr double kForgetting = 0.9;
// The prior: this many blocks of each kind, of which a part is used again, evenly over doublings of age up to
// four turnovers of the cache. By itself it ranks by age alone.
constexpr double kPriorShare = 0.1;
constexpr double kPriorReuse = 0.4;

}  // namespace

ReuseForecast::ReuseForecast(int64_t blocks)
    : blocks_(std::max<int64_t>(1, blocks)), until_learning_(blocks_) {
  Learn();
}

// 0 holds ages 0 and 1; from there on two buckets a doubling.
int ReuseForecast::Bucket(uint64_t age) {
  if (age < 2) return 0;
  const int log = std::bit_width(age) - 1;
  const int half = static_cast<int>((age >> (log - 1)) & 1);
  return std::min(kBuckets - 1, 2 * log + half - 1);
}

double ReuseForecast::Start(int bucket) {
  if (bucket == 0) return 0;
  const int log = (bucket + 1) / 2, half = (bucket + 1) % 2;
  return std::ldexp(1.0 + half / 2.0, log);
}

void ReuseForecast::Entered(Kind kind) {
  entered_[kind] += 1;
  if (--until_learning_ <= 0) {
    Learn();
    for (double& count : entered_) count *= kForgetting;
    for (auto& counts : reused_) {
      for (double& count : counts) count *= kForgetting;
    }
    until_learning_ = std::max<int64_t>(64, blocks_ / 4);
  }
}

void ReuseForecast::Reused(Kind kind, uint64_t age) { reused_[kind][Bucket(age)] += 1; }

double ReuseForecast::ReuseShare(Kind kind) const {
  const double prior = kPriorShare * static_cast<double>(blocks_);
  double reused = prior * kPriorReuse;
  for (const double count : reused_[kind]) reused += count;
  return std::min(1.0, reused / (entered_[kind] + prior));
}

void ReuseForecast::Learn() {
  const int last = Bucket(4 * static_cast<uint64_t>(blocks_));
  const double prior = kPriorShare * static_cast<double>(blocks_);
  for (int kind = 0; kind < kKinds; ++kind) {
    std::array<double, kBuckets> used{}, left{};
    double survivors = entered_[kind] + prior;
    for (int i = 0; i < kBuckets; ++i) {
      used[i] = reused_[kind][i] + (i <= last ? prior * kPriorReuse / (last + 1) : 0);
      left[i] = survivors;
      // Uses of blocks that entered before the oldest memory can outnumber those remembered.
      survivors = std::max(survivors - used[i], 0.05 * left[i]);
    }
    for (int from = 0; from < kBuckets; ++from) {
      double uses = 0, time = 0, best = 0;
      for (int to = from; to < kBuckets - 1 && to <= last + 2; ++to) {
        uses += used[to];
        time += (left[to] - used[to] / 2) * (Start(to + 1) - Start(to));
        best = std::max(best, uses / time);
      }
      worth_[kind][from] = best;
    }
  }
}

}  // namespace baton::kv
