// WorkerCosts: what one kind of work (a prefill, or a decode step) takes on each worker, and on the average
// one. What requests took is observed. A worker also measures itself at its start, and as requests include
// what a bare step does not, the two are never compared: a worker that was measured and not yet observed is
// predicted by the mean of those that were both, times the ratio of its measurement to the mean of theirs,
// and follows that mean. Plain data, one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/forecast/linear_fit.h"
#include "common/forecast/prefill_forecast.h"

namespace baton::router::placement {

using Weights = std::array<double, 3>;

// The two kinds of work.
class PrefillFit : public forecast::PrefillForecast {
 public:
  PrefillFit(const Weights& weights, forecast::Of of)
      : PrefillForecast({.base = weights[0], .token = weights[1], .pair = weights[2]}, of) {}
  Weights weights() const {
    const forecast::PrefillCost cost = this->cost();
    return {cost.base, cost.token, cost.pair};
  }
};
// Of a decode step: of 1, the answers in it, and the tokens that they attend to.
class StepFit : public forecast::LinearFit<3> {
 public:
  StepFit(const Weights& weights, forecast::Of of) : LinearFit(weights, {1, 100, 1e5}, of) {}
};

template <typename Forecast>
class WorkerCosts {
 public:
  // One worker's.
  struct Entry {
    Forecast forecast;
    // Seconds that the reference work took as the worker measured itself; 0: it did not.
    double measured = 0;
    bool observed = false;
    // If it was not observed: how many observations of others the forecast has taken up.
    int64_t followed = 0;
  };

  explicit WorkerCosts(const Weights& prior) : average_(prior, forecast::Of::kMany) {}

  const Forecast& Of(WorkerSlot slot) const {
    if (!Knows(slot)) return average_;
    Entry& entry = *entries_[slot.value()];
    if (!entry.observed && entry.followed != changes_) Follow(entry);
    return entry.forecast;
  }
  // Returns whether the worker was observed or introduced.
  bool Knows(WorkerSlot slot) const {
    return slot.value() < entries_.size() && entries_[slot.value()].has_value();
  }
  // The average of what was observed; before the first observation, of what was measured.
  const Forecast& average() const { return average_; }

  // A worker that measured `own`. `reference` observes its seconds of the reference work, `measured`. Ignored
  // for a worker that is known.
  template <typename Learn>
  void Introduce(WorkerSlot slot, const Weights& own, double measured, const Learn& reference) {
    if (Knows(slot)) return;
    Put(slot, Entry{.forecast = Forecast(own, forecast::Of::kOne), .measured = measured});
    if (!observed_) reference(average_);
  }
  // `learn` observes what a request took.
  template <typename Learn>
  void Observe(WorkerSlot slot, const Learn& learn) {
    if (!Knows(slot)) Put(slot, Entry{.forecast = Forecast(average_.weights(), forecast::Of::kOne)});
    Of(slot);  // the first observation meets a forecast that is up to date
    Entry& entry = *entries_[slot.value()];
    Count(entry, -1);
    learn(entry.forecast);
    entry.observed = true;
    Count(entry, 1);
    // The seconds that were measured say nothing more.
    if (!std::exchange(observed_, true)) average_ = Forecast(average_.weights(), forecast::Of::kMany);
    learn(average_);
    ++changes_;
  }

  // What is known of the worker of a slot goes and comes back.
  std::optional<Entry> Get(WorkerSlot slot) const {
    return Knows(slot) ? entries_[slot.value()] : std::nullopt;
  }
  void Put(WorkerSlot slot, std::optional<Entry> entry) {
    if (slot.value() >= entries_.size()) entries_.resize(slot.value() + 1);
    std::optional<Entry>& place = entries_[slot.value()];
    if (place.has_value()) Count(*place, -1);
    place = std::move(entry);
    if (place.has_value()) {
      Count(*place, 1);
      place->followed = 0;
    }
    if (observed_) ++changes_;
  }

 private:
  // Adds the entry to the sums over workers that were measured and observed, or takes it out.
  void Count(const Entry& entry, int sign) {
    if (!entry.observed || entry.measured <= 0) return;
    workers_ += sign;
    const Weights weights = entry.forecast.weights();
    for (size_t i = 0; i < weights.size(); ++i) sum_[i] = workers_ == 0 ? 0 : sum_[i] + sign * weights[i];
    measured_ = workers_ == 0 ? 0 : measured_ + sign * entry.measured;
  }
  void Follow(Entry& entry) const {
    Weights weights = average_.weights();
    if (workers_ > 0 && entry.measured > 0) {
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] = std::max(0.0, sum_[i]) * entry.measured / measured_;
    }
    entry.forecast = Forecast(weights, forecast::Of::kOne);
    entry.followed = changes_;
  }

  // By slot. Forecasts of workers that were not observed are brought up to date when they are asked for: of
  // many workers one kind of work is never seen, and never asked for.
  mutable std::vector<std::optional<Entry>> entries_;
  Forecast average_;
  bool observed_ = false;
  int64_t changes_ = 0;
  int64_t workers_ = 0;
  Weights sum_{};
  double measured_ = 0;
};

}  // namespace baton::router::placement
