#include "protocol/forecast/step_forecast.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace baton::forecast {
namespace {

constexpr LinearFit<5>::Features kScale = {1, 8, 8e3, 512, 256e3};

LinearFit<5>::Features FeaturesOf(const StepLoad& load) {
  return {1, static_cast<double>(load.running + load.drafted), static_cast<double>(load.context),
          static_cast<double>(load.rows), load.pairs + load.drafted_pairs};
}

LinearFit<5>::Features WeightsOf(const StepCost& cost) {
  return {cost.base, cost.sequence, cost.context, cost.token, cost.pair};
}

double Pairs(int64_t first, int64_t count) {
  return static_cast<double>(count) * (static_cast<double>(first) + static_cast<double>(count) / 2);
}

}  // namespace

bool Plausible(const StepCost& cost) {
  double sum = 0;
  for (const double part : WeightsOf(cost)) {
    if (!std::isfinite(part) || part < 0 || part > 1e6) return false;
    sum += part;
  }
  return sum > 0;
}

void StepLoad::AddRows(int64_t first, int64_t count) {
  rows += count;
  pairs += Pairs(first, count);
}

void StepLoad::AddDrafted(int64_t first, int64_t count) {
  drafted += count;
  drafted_pairs += Pairs(first, count);
}

StepForecast::StepForecast(const StepCost& prior) : fit_(WeightsOf(prior), kScale) {}

double StepForecast::Line(const StepLoad& load) const { return fit_.Predict(FeaturesOf(load)); }

double StepForecast::Seconds(const StepLoad& load) const {
  return load.rows > 0 ? Line(load) : Line(load) * rows_.Factor(load.running + load.drafted);
}

double StepCost::PromptSeconds(const StepLoad& load) const {
  return token * static_cast<double>(load.rows) + pair * load.pairs;
}

double StepForecast::PromptSeconds(const StepLoad& load) const { return cost().PromptSeconds(load); }

double StepForecast::PlainShare(const StepLoad& load) const {
  if (load.drafted == 0) return 1;
  const double plain = Seconds({.running = load.running, .context = load.context});
  return plain > 0 ? std::min(1.0, plain / Seconds(load)) : 1;
}

void StepForecast::Observe(const StepLoad& load, double seconds) {
  fit_.Observe(FeaturesOf(load), seconds);
  if (load.rows == 0) rows_.Observe(load.running + load.drafted, seconds, Line(load));
}

void StepForecast::Fit(std::span<const Measured> measured) {
  std::vector<LinearFit<5>::Observation> observations;
  for (const Measured& one : measured) observations.push_back({FeaturesOf(one.load), one.seconds});
  fit_.Fit(observations);
}

StepCost StepForecast::cost() const {
  const auto w = fit_.weights();
  return {.base = w[0], .sequence = w[1], .context = w[2], .token = w[3], .pair = w[4]};
}

double TargetOfStep(double slo_tpot, double alone) {
  constexpr double kSlowest = 2;
  constexpr double kMargin = 0.95;
  return alone <= kMargin * slo_tpot ? kMargin * slo_tpot : kSlowest * alone;
}

int64_t AnswersInTime(double slo_tpot, int64_t most, absl::FunctionRef<double(int64_t)> step_seconds) {
  const double target = TargetOfStep(slo_tpot, step_seconds(1));
  int64_t least = 1;
  while (least < most) {
    const int64_t middle = least + (most - least + 1) / 2;
    if (step_seconds(middle) <= target) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

// token r + pair r (first + r / 2) = seconds, solved for r; the form without a difference of near equals.
int64_t RowsWithin(double seconds, double token, double pair, int64_t first) {
  constexpr int64_t kMaxTokens = 1 << 30;
  if (!(seconds > 0)) return 0;
  const double linear = token + pair * static_cast<double>(std::max<int64_t>(0, first));
  const double divisor = linear + std::sqrt(linear * linear + 2 * pair * seconds);
  return divisor > 0 ? static_cast<int64_t>(std::min<double>(kMaxTokens, 2 * seconds / divisor)) : kMaxTokens;
}

}  // namespace baton::forecast
