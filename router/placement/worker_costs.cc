#include "router/placement/worker_costs.h"

#include <algorithm>

namespace baton::router::placement {
namespace {

constexpr double kLatestWeight = 0.3;
// The latest observation counts so much in the variance, which is no less than that of 10%.
constexpr double kVarianceWeight = 0.02;
constexpr double kLeastVariance = 0.01;
// One observation says no more than that a worker takes so many times what was expected, or one so many-th.
constexpr double kMostSurprise = 10;

double Clamped(double logarithm) {
  return std::clamp(logarithm, -std::log(kMostSurprise), std::log(kMostSurprise));
}

}  // namespace

double WorkerFactors::WeightOf(const Entry& entry) const {
  const double half_lives = (observations_ - entry.at) / (kHalfLife * std::max<double>(1, workers_));
  return entry.weight * std::exp2(-half_lives);
}

double WorkerFactors::Middle() const {
  if (middle_.has_value()) return *middle_;
  double sum = 0, weight = 0;
  for (const std::optional<Entry>& entry : entries_) {
    if (!entry.has_value()) continue;
    const double counts = WeightOf(*entry);
    sum += counts * entry->mean;
    weight += counts;
  }
  middle_ = weight > 0 ? sum / weight : 0;
  return *middle_;
}

std::optional<double> WorkerFactors::PaceBeside(const Entry& own) const {
  double sum = 0;
  int64_t count = 0;
  for (const std::optional<Entry>& entry : entries_) {
    if (!entry.has_value() || &*entry == &own || entry->weight <= 0) continue;
    if (observations_ - entry->at > kLately) continue;
    sum += entry->latest - entry->mean;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

WorkerFactors::Known WorkerFactors::KnownOf(const Entry& entry) const {
  const double weight = WeightOf(entry);
  const double measures = entry.measured > 0 ? 1 : 0;
  const double measured =
      entry.measured > 0 ? std::log(entry.measured) - measured_ / static_cast<double>(measuring_) : 0;
  const double counts = weight + measures + variance_ / (kSpread * kSpread);
  // From the mean of n a value is less far than from its own true one.
  const double others = 1 - 1 / static_cast<double>(std::max<int64_t>(2, workers_));
  return {.apart = (weight * (entry.mean - Middle()) + measures * measured) / counts,
          .error = std::sqrt(variance_ / counts * others)};
}

double WorkerFactors::average() const { return std::exp(Middle()); }

double WorkerFactors::Of(WorkerSlot slot) const {
  if (!Knows(slot)) return average();
  if (kept_.size() < entries_.size()) kept_.resize(entries_.size());
  Kept& kept = kept_[slot.value()];
  if (std::exchange(kept.at, changes_) == changes_) return kept.factor;
  const Known known = KnownOf(*entries_[slot.value()]);
  const double beyond = std::max(0.0, std::abs(known.apart) - kSure * known.error);
  kept.factor = average() * std::exp(std::copysign(beyond, known.apart));
  return kept.factor;
}

double WorkerFactors::Share(WorkerSlot slot) const {
  return Knows(slot) ? std::exp(KnownOf(*entries_[slot.value()]).apart) : 1;
}

void WorkerFactors::Observe(WorkerSlot slot, double over_expected, double weight) {
  if (!Knows(slot)) Put(slot, Entry());
  Entry& entry = *entries_[slot.value()];
  const double seen = std::log(over_expected);
  entry.latest = entry.weight > 0 ? entry.latest + kLatestWeight * (seen - entry.latest) : seen;
  if (const std::optional<double> pace = PaceBeside(entry); pace.has_value() || entry.weight <= 0) {
    const double off = Clamped(seen - pace.value_or(0) - entry.mean);
    const double side = off > std::log(kOff) ? weight : off < -std::log(kOff) ? -weight : 0;
    entry.off = side * entry.off > 0 ? entry.off + side : side;
    entry.weight = WeightOf(entry);
    if (std::abs(entry.off) >= kInARow) entry.weight = std::min(entry.weight, weight);
    entry.weight += weight;
    entry.mean += off * weight / entry.weight;
    variance_ = std::max(kLeastVariance, variance_ + kVarianceWeight * weight * (off * off - variance_));
  }
  entry.at = observations_ += weight;
  Changed();
}

void WorkerFactors::Put(WorkerSlot slot, std::optional<Entry> entry) {
  if (slot.value() >= entries_.size()) entries_.resize(slot.value() + 1);
  std::optional<Entry>& place = entries_[slot.value()];
  const auto count = [this](const Entry& one, int sign) {
    workers_ += sign;
    if (one.measured <= 0) return;
    measuring_ += sign;
    measured_ = measuring_ == 0 ? 0 : measured_ + sign * std::log(one.measured);
  };
  if (place.has_value()) count(*place, -1);
  place = std::move(entry);
  if (place.has_value()) {
    place->at = std::min(place->at, observations_);
    count(*place, 1);
  }
  Changed();
}

void WorkerFactors::Changed() {
  middle_.reset();
  ++changes_;
}

}  // namespace baton::router::placement
