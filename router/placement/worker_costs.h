// WorkerCosts: what one kind of work (a prefill, or a decode step) takes on each worker: what it takes in the
// fleet, times a factor of the worker's own. Like is compared with like:
//
// - The fleet's forecast is learnt from all workers, each observation divided by its worker's factor, as if
//   one machine had made them all. It follows at once what befalls all of them. A second one that hardly
//   moves, the reference, is what workers are compared by.
// - A worker's factor is learnt from how far its observations are off the reference, beyond by how much the
//   other workers' latest ones are: a worker that is asked alone finds the machine idle, and nothing is
//   learnt against the others. Answers of one batch are one observation, by the parts that they are of it: a
//   burst on one worker is one thing seen, not sixteen.
// - A worker is taken to be like the fleet until what was seen of it says otherwise by more than chance: its
//   factor counts as far as it lies beyond kSure standard errors. So one slow answer starves nobody, and of
//   workers within what is known the one with less to do is the cheaper one.
// - What is known of a worker counts half as much after every kHalfLife observations a worker of the fleet:
//   who gets nothing is like the fleet again in time, and is tried again.
// - Workers also measure themselves at their start. A request includes what a bare step does not, so
//   measurements are compared with measurements alone: that of a worker over the mean of theirs is what it
//   is taken for at first, in place of the fleet's mean.
//
// Plain data, one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "protocol/forecast/linear_fit.h"
#include "protocol/forecast/prefill_forecast.h"
#include "router/index/worker_slot.h"

namespace baton::router::placement {

using Weights = std::array<double, 3>;

// The two kinds of work.
class PrefillFit : public forecast::PrefillForecast {
 public:
  PrefillFit(const Weights& weights, forecast::Of of)
      : PrefillForecast({.base = weights[0], .token = weights[1], .pair = weights[2]}, of) {}
};
// Fit of a decode step's cost over 1, the answers in it, and the tokens that they attend to.
class StepFit : public forecast::LinearFit<3> {
 public:
  StepFit(const Weights& weights, forecast::Of of) : LinearFit(weights, {1, 100, 1e5}, of) {}
};

// WorkerFactors: the factors, whatever the work. One worker's part is an Entry.
class WorkerFactors {
 public:
  static constexpr double kSure = 2;
  static constexpr double kHalfLife = 64;
  // By which workers of a fleet differ before anything is known of one: a factor of 1.5.
  static constexpr double kSpread = 0.4;  // standard deviation of its logarithm
  // So far off to the same side this many times in a row: what came before is out of date. It is more than
  // kLately, so that a worker that from now on is asked alone does not come to it.
  static constexpr double kOff = 1.5;
  static constexpr double kInARow = 5;
  // The pace is what those of others say among the last so many observations.
  static constexpr double kLately = 4;

  struct Entry {
    double measured = 0;  // seconds of the reference work, as it measured itself; 0: it did not
    double mean = 0;      // of the logarithms of observed over expected
    double weight = 0;    // observations that this is the mean of, as they counted at `at`
    double at = 0;        // of all observations, when its last one was made
    double off = 0;       // observations in a row: above the mean, or, negative, below
    double latest = 0;    // logarithms of observed over expected, smoothed
  };

  // By which the fleet's forecast is multiplied for a worker, known or not.
  double Of(WorkerSlot slot) const;
  // The same for the mean of the fleet.
  double average() const;
  // By which an observation of the worker is divided, for the fleet's forecast to learn from.
  double Share(WorkerSlot slot) const;
  // Observed over what the reference expects. `weight`, in (0, 1], is less than 1 for one of several
  // observations of the same time on the same worker.
  void Observe(WorkerSlot slot, double over_expected, double weight);

  // Returns whether the worker was observed or introduced.
  bool Knows(WorkerSlot slot) const {
    return slot.value() < entries_.size() && entries_[slot.value()].has_value();
  }
  // Saves and restores the entry of a slot's worker.
  std::optional<Entry> Get(WorkerSlot slot) const {
    return Knows(slot) ? entries_[slot.value()] : std::nullopt;
  }
  void Put(WorkerSlot slot, std::optional<Entry> entry);

 private:
  // Observations that the entry's mean counts as now.
  double WeightOf(const Entry& entry) const;
  // The mean of all workers' means, each by its weight.
  double Middle() const;
  // By how much the other workers that were observed lately are off their own means, on average; nothing if
  // there is none.
  std::optional<double> PaceBeside(const Entry& own) const;
  // How far a worker is from it, and the standard error of that: the posterior mean and deviation of a normal
  // distribution, given the workers' spread, what was observed, and what it measured, which is an observation
  // like others.
  struct Known {
    double apart = 0;
    double error = 0;
  };
  Known KnownOf(const Entry& entry) const;
  void Changed();

  std::vector<std::optional<Entry>> entries_;  // by slot
  int64_t workers_ = 0;
  double observations_ = 0;
  // The variance of the logarithm of observed over expected, of one observation.
  double variance_ = 0.1;
  double measured_ = 0;  // sum of logarithms, over workers that measured themselves
  int64_t measuring_ = 0;
  // Until something changes.
  mutable std::optional<double> middle_;
  struct Kept {
    int64_t at = -1;  // of changes_
    double factor = 0;
  };
  mutable std::vector<Kept> kept_;  // by slot
  int64_t changes_ = 0;
};

template <typename Forecast>
class WorkerCosts {
 public:
  using Entry = WorkerFactors::Entry;

  explicit WorkerCosts(const Weights& prior)
      : fleet_(prior, forecast::Of::kOne), reference_(prior, forecast::Of::kMany) {}

  // The work takes the fleet's forecast times the worker's factor on a worker.
  const Forecast& fleet() const { return fleet_; }
  double factor(WorkerSlot slot) const { return factors_.Of(slot); }
  // That of the mean of the fleet.
  double average_factor() const { return factors_.average(); }
  // Returns whether the worker was observed or introduced.
  bool Knows(WorkerSlot slot) const { return factors_.Knows(slot); }

  // A worker whose work takes `own` as it measured itself, and `measured` seconds for the reference work.
  // Ignored for a worker that is known.
  void Introduce(WorkerSlot slot, const Weights& own, double measured) {
    if (Knows(slot)) return;
    factors_.Put(slot, Entry{.measured = measured});
    if (observed_) return;
    // Until something was observed the fleet is the mean of what was measured.
    ++introduced_;
    for (size_t i = 0; i < own.size(); ++i) {
      introduced_mean_[i] += (own[i] - introduced_mean_[i]) / static_cast<double>(introduced_);
    }
    fleet_ = Forecast(introduced_mean_, forecast::Of::kOne);
    reference_ = Forecast(introduced_mean_, forecast::Of::kMany);
  }
  // A request's work took `seconds` there, beside `beside` others. learn(fleet, seconds) has a forecast learn
  // it, and expect(fleet) says what it expects. Times that no work takes are ignored: the fleet's forecast
  // would have them from one worker for all.
  template <typename Learn, typename Expect>
  void Observe(WorkerSlot slot, double seconds, double beside, const Learn& learn, const Expect& expect) {
    if (!(seconds >= kLeastSeconds && seconds <= kMostSeconds)) return;
    learn(reference_, seconds / factors_.Share(slot));
    observed_ = true;
    const double over_expected = seconds / expect(reference_);
    if (std::isnormal(over_expected)) factors_.Observe(slot, over_expected, 1 / (1 + std::max(0.0, beside)));
    learn(fleet_, seconds / factors_.Share(slot));
  }

  std::optional<Entry> Get(WorkerSlot slot) const { return factors_.Get(slot); }
  void Put(WorkerSlot slot, std::optional<Entry> entry) { factors_.Put(slot, std::move(entry)); }

 private:
  static constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e6;

  Forecast fleet_;      // follows at once
  Forecast reference_;  // hardly moves: what workers are compared by
  WorkerFactors factors_;
  bool observed_ = false;
  int64_t introduced_ = 0;
  Weights introduced_mean_{};
};

}  // namespace baton::router::placement
