#include "common/forecast/linear_fit.h"

#include <algorithm>
#include <cmath>

namespace baton::forecast {
namespace {

// Of the spread, when observations tell nothing new for long: it would grow without bound (wind-up).
constexpr double kMostSpread = 1e3;
constexpr double kErrorWeight = 0.05;

}  // namespace

LinearFit::LinearFit(Features prior, Features scale) : scale_(scale) {
  for (int i = 0; i < 3; ++i) {
    weights_[i] = prior[i] * scale_[i];
    spread_[i][i] = 1;
  }
}

double LinearFit::Predict(const Features& x) const {
  double y = 0;
  for (int i = 0; i < 3; ++i) y += std::max(0.0, weights_[i]) * x[i] / scale_[i];
  return y;
}

LinearFit::Features LinearFit::weights() const {
  Features weights;
  for (int i = 0; i < 3; ++i) weights[i] = std::max(0.0, weights_[i]) / scale_[i];
  return weights;
}

void LinearFit::Observe(const Features& x, double y) {
  if (!std::isfinite(y) || y < 0) return;
  const double predicted = Predict(x);
  if (y > 0) {
    const double error = std::min(1.0, std::abs(y - predicted) / y);
    relative_error_ += (observations_ == 0 ? 1 : kErrorWeight) * (error - relative_error_);
  }
  // In relative terms: the variance of a measured time grows with the square of the time, so a row counts by
  // one over the square of its expectation. Otherwise the longest prompts alone would decide. (By the square
  // of what was measured, whatever happened to be quick would count most: where times vary by a factor of two
  // the fit would lie at half of the mean.) What took more than twice as long as expected counts less, or one
  // stall would weigh as much as many good rows. The first few may be far off the prior: that is what they
  // are for, and they count by what was measured.
  constexpr int64_t kTrustAll = 8;
  double expected = y;
  if (++observations_ > kTrustAll) {
    y = std::min(y, predicted * (1 + kMostSurprise));
    expected = std::max(predicted, y / 2);
  }
  const double weight = 1 / std::max(1e-4, expected);
  Features u;
  for (int i = 0; i < 3; ++i) u[i] = x[i] / scale_[i] * weight;
  double linear = 0;
  for (int i = 0; i < 3; ++i) linear += weights_[i] * u[i];
  const double surprise = y * weight - linear;

  Features gain;
  double denominator = kForgetting;
  for (int i = 0; i < 3; ++i) {
    gain[i] = 0;
    for (int j = 0; j < 3; ++j) gain[i] += spread_[i][j] * u[j];
    denominator += u[i] * gain[i];
  }
  std::array<std::array<double, 3>, 3> next;
  double trace = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      next[i][j] = (spread_[i][j] - gain[i] * gain[j] / denominator) / kForgetting;
    }
    trace += next[i][i];
  }
  for (int i = 0; i < 3; ++i) weights_[i] += gain[i] / denominator * surprise;
  if (trace < kMostSpread) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) spread_[i][j] = (next[i][j] + next[j][i]) / 2;
    }
  }
}

}  // namespace baton::forecast
