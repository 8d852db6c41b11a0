#include "engine/sampling/ranking.h"

#include <algorithm>

#include "common/base/check.h"
#include "engine/sampling/softmax.h"

namespace baton::sampling {

void Ranking::Rank(std::span<const float> logits, float max, double inverse_temperature) {
  logits_ = logits;
  max_ = max;
  inverse_temperature_ = inverse_temperature;
  bucket_of_.resize(logits.size());
  mass_.fill(0);
  count_.fill(0);
  sorted_bucket_ = -1;

  // Infinite for the smallest temperatures, and then 0 x infinity would be NaN.
  const float scale = static_cast<float>(
      std::min(inverse_temperature * kBucketsPerUnit, double{std::numeric_limits<float>::max()}));
  constexpr float kLast = kBuckets - 1;
  constexpr size_t kChunk = 512;
  double weights[kChunk];
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const auto chunk = logits.subspan(begin, std::min(kChunk, logits.size() - begin));
    int32_t* const buckets = bucket_of_.data() + begin;
    Weights(chunk, max, inverse_temperature, std::span(weights).first(chunk.size()));
    // Each step is monotonic, so a larger logit is never in a later bucket.
    for (size_t i = 0; i < chunk.size(); ++i) {
      const float place = (max - chunk[i]) * scale;
      buckets[i] = static_cast<int32_t>(place < kLast ? place : kLast);  // NaN goes last, too
    }
    for (size_t i = 0; i < chunk.size(); ++i) {
      mass_[buckets[i]] += weights[i];
      count_[buckets[i]] += weights[i] > 0;
    }
  }
  used_ = kBuckets;
  while (used_ > 0 && count_[used_ - 1] == 0) --used_;
  total_ = Keep({});
}

double Ranking::Keep(const Cut& cut) {
  kept_mass_ = 0;
  for (last_ = 0; last_ < used_; ++last_) {
    if (count_[last_] == 0) continue;
    // A bucket before both ends is kept unseen. The margins are wider than what rounding can do.
    const float far_edge = -static_cast<float>(last_ + 1) / kBucketsPerUnit;
    const bool before_mass = kept_mass_ + mass_[last_] < cut.mass * (1 - 1e-9);
    const bool before_weight =
        cut.weight == 0 || (last_ + 1 < kBuckets && Weight(far_edge, 0, 1) > cut.weight * (1 + 1e-5));
    if (before_mass && before_weight) {
      kept_mass_ += mass_[last_];
      continue;
    }
    Sort(last_);
    kept_in_last_ = 0;
    kept_mass_in_last_ = 0;
    for (const Candidate& candidate : sorted_) {
      const double weight = WeightOf(candidate);
      if (cut.EndsBefore(weight, kept_mass_ + kept_mass_in_last_)) return kept_mass_ += kept_mass_in_last_;
      kept_mass_in_last_ += weight;
      ++kept_in_last_;
    }
    kept_mass_ += kept_mass_in_last_;
  }
  kept_in_last_ = 0;
  kept_mass_in_last_ = 0;
  return kept_mass_;
}

int32_t Ranking::At(double share) {
  const double target = share * kept_mass_;
  double passed = 0;
  int found =
      -1;  // the bucket with the target or, should rounding leave it unreached, the last one with anything
  double before = 0;
  for (int bucket = 0; bucket < used_ && bucket <= last_; ++bucket) {
    const bool whole = bucket < last_;
    if ((whole ? count_[bucket] : kept_in_last_) == 0) continue;
    found = bucket;
    before = passed;
    passed += whole ? mass_[bucket] : kept_mass_in_last_;
    if (passed > target) break;
  }
  BATON_CHECK(found >= 0) << "nothing is ranked";
  Sort(found);
  const auto kept = std::span(sorted_).first(found < last_ ? sorted_.size() : kept_in_last_);
  for (const Candidate& candidate : kept) {
    before += WeightOf(candidate);
    if (before > target) return candidate.id;
  }
  return kept.back().id;
}

int64_t Ranking::kept_count() const {
  int64_t count = kept_in_last_;
  for (int bucket = 0; bucket < last_; ++bucket) count += count_[bucket];
  return count;
}

std::vector<Candidate> Ranking::Kept() {
  std::vector<Candidate> kept;
  for (size_t i = 0; i < logits_.size(); ++i) {
    const Candidate candidate = {logits_[i], static_cast<int32_t>(i)};
    if (bucket_of_[i] <= last_ && WeightOf(candidate) > 0) kept.push_back(candidate);
  }
  std::sort(kept.begin(), kept.end());
  kept.resize(kept_count());
  return kept;
}

double Ranking::WeightOf(const Candidate& candidate) const {
  return Weight(candidate.logit, max_, inverse_temperature_);
}

void Ranking::Sort(int bucket) {
  if (sorted_bucket_ == bucket) return;
  sorted_bucket_ = bucket;
  sorted_.clear();
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (bucket_of_[i] != bucket) continue;
    const Candidate candidate = {logits_[i], static_cast<int32_t>(i)};
    if (WeightOf(candidate) > 0) sorted_.push_back(candidate);
  }
  std::sort(sorted_.begin(), sorted_.end());
}

}  // namespace baton::sampling
