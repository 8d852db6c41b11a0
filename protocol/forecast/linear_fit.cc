#include "protocol/forecast/linear_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace baton::forecast {
namespace {

constexpr double kErrorWeight = 0.05;
// That a weight lies a factor of two off the shape counts as much as an observation that is off by the root
// of this, 4%: large enough that noise does not decide, small enough that three observations do.
constexpr double kShapeWeight = 0.0015;
// A measurement on purpose, with nothing else running, counts as so many observations of the same: a prior
// whose proportions are an accelerator's must not decide what a few steps on a CPU take.
constexpr double kMeasuredWeight = 16;
// Observations that tell a shape, even if each is off by a factor of two.
constexpr double kManyToShape = 16;
// Least share of the sum at the usual size: a weight of zero could never grow.
constexpr double kMinShare = 0.01;
constexpr double kMinPositive = 1e-9;

// Solves a x = b, a symmetric and positive definite, of the first `n` rows, by elimination.
template <size_t N>
std::array<double, N> SolveSystem(std::array<std::array<double, N>, N> a, std::array<double, N> b, size_t n) {
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

// How many times the one is the other; both are positive or nearly zero.
double Apart(double a, double b) { return std::max(a, b) / std::max(1e-300, std::min(a, b)); }

}  // namespace

template <size_t N>
LinearFit<N>::LinearFit(const Features& prior, const Features& scale, Of of) : of_(of), scale_(scale) {
  for (size_t i = 0; i < N; ++i) weights_[i] = prior[i] * scale_[i];
  Reshape();
}

template <size_t N>
void LinearFit<N>::Reshape() {
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  middle_ = weights_;
  for (size_t i = 0; i < N; ++i) shape_[i] = std::max(weights_[i], std::max(kMinPositive, kMinShare * sum));
}

template <size_t N>
void LinearFit<N>::Clear() {
  if (count_ >= kManyToShape) Reshape();
  squares_ = {};
  products_ = {};
  count_ = 0;
}

template <size_t N>
double LinearFit<N>::Predict(const Features& x) const {
  double y = 0;
  for (size_t i = 0; i < N; ++i) y += weights_[i] * x[i] / scale_[i];
  return y;
}

template <size_t N>
typename LinearFit<N>::Features LinearFit<N>::weights() const {
  Features weights;
  for (size_t i = 0; i < N; ++i) weights[i] = weights_[i] / scale_[i];
  return weights;
}

// Relative: the variance of a measured time grows with the square of the time, so a row counts by one over
// the square of its expectation. Otherwise the longest prompts alone would decide. (By the square of what was
// measured, whatever happened to be quick would count most: where times vary by a factor of two the fit would
// lie at half of the mean.)
template <size_t N>
void LinearFit<N>::Add(const Features& x, double y, double expected) {
  Features u;
  for (size_t i = 0; i < N; ++i) u[i] = x[i] / scale_[i] / expected;
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = 0; j < N; ++j) squares_[i][j] = kForgetting * squares_[i][j] + u[i] * u[j];
    products_[i] = kForgetting * products_[i] + u[i] * y / expected;
  }
  count_ = kForgetting * count_ + 1;
}

// Minimizes the squared errors plus a weight times the squared distances from the middle, in units of the
// shape: the more observations vary, the more of them it takes to speak against it. Both are multiplied by
// the factor with which the middle suits the observations best; weights that come out below zero are zero,
// the lowest first.
template <size_t N>
void LinearFit<N>::Solve() {
  double along = 0, across = 0;
  for (size_t i = 0; i < N; ++i) {
    along += middle_[i] * products_[i];
    for (size_t j = 0; j < N; ++j) across += middle_[i] * squares_[i][j] * middle_[j];
  }
  if (!(across > 0) || !(along > 0) || !std::isfinite(along / across)) return;
  Features unit, middle;
  for (size_t i = 0; i < N; ++i) {
    unit[i] = shape_[i] * (along / across);
    middle[i] = middle_[i] / shape_[i];
  }
  // An observation, in the units in which the shape's distance is counted: 1 if all were as expected.
  const double usual = across * (along / across) * (along / across) / count_;
  const double weight = usual * std::max(kShapeWeight, noise_);
  std::array<size_t, N> free;
  std::iota(free.begin(), free.end(), 0);
  for (size_t n = N; n > 0; --n) {
    std::array<Features, N> a{};
    Features b{};
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) a[i][j] = unit[free[i]] * squares_[free[i]][free[j]] * unit[free[j]];
      a[i][i] += weight;
      b[i] = unit[free[i]] * products_[free[i]] + weight * middle[free[i]];
    }
    const Features solved = SolveSystem<N>(a, b, n);
    if (!std::all_of(solved.begin(), solved.begin() + static_cast<int64_t>(n),
                     [](double value) { return std::isfinite(value); })) {
      return;
    }
    const auto lowest = std::min_element(solved.begin(), solved.begin() + static_cast<int64_t>(n));
    if (!(*lowest < 0) || n == 1) {
      weights_ = {};
      for (size_t i = 0; i < n; ++i) weights_[free[i]] = unit[free[i]] * std::max(0.0, solved[i]);
      return;
    }
    // The rest stays in order.
    const auto at = lowest - solved.begin();
    std::move(free.begin() + at + 1, free.begin() + static_cast<int64_t>(n), free.begin() + at);
  }
}

template <size_t N>
typename LinearFit<N>::Features LinearFit<N>::Rescaled(Features weights, const Features& x, double y) const {
  const double least =
      std::max(kMinPositive, kMinShare * std::accumulate(weights.begin(), weights.end(), 0.0));
  double predicted = 0;
  for (size_t i = 0; i < N; ++i) {
    weights[i] = std::max(weights[i], least);
    predicted += weights[i] * x[i] / scale_[i];
  }
  if (!(predicted > 0) || !std::isfinite(predicted)) return weights;
  Features rescaled;
  for (size_t i = 0; i < N; ++i) {
    rescaled[i] = weights[i] * std::pow(y / predicted, weights[i] * x[i] / scale_[i] / predicted);
  }
  return rescaled;
}

template <size_t N>
void LinearFit<N>::Observe(const Features& x, double y) {
  if (!std::isfinite(y) || y <= 0) return;
  const double predicted = Predict(x);
  if (!std::isfinite(predicted)) return;
  const double error = std::min(1.0, std::abs(y - predicted) / y);
  relative_error_ += (observations_ == 0 ? 1 : kErrorWeight) * (error - relative_error_);
  const bool first = ++observations_ <= kFirst;
  if (of_ == Of::kMany) {
    if (!first) y = std::min(y, predicted * (1 + kMaxSurprise));
    double usual = 0;
    for (size_t i = 0; i < N; ++i) usual += shape_[i] * x[i] / scale_[i];
    Add(x, y, std::max(kMinPositive, usual));
    Solve();
    return;
  }
  double expected = std::max(kMinPositive, y);
  if (!first) {
    y = std::clamp(y, predicted / kMaxChange, predicted * kMaxChange);
    // A time of more than twice the expected one counts less, or one stall would weigh as much as many good
    // rows.
    expected = std::max({kMinPositive, predicted, y / 2});
  }
  std::shift_left(latest_.begin(), latest_.end(), 1);
  latest_.back() = {x, y};
  // The first few are off because the shape is; the others because times vary.
  if (count_ > kFirst) {
    const double off = std::min(1.0, std::abs(y - predicted) / expected);
    noise_ += kErrorWeight * (off * off - noise_);
  }
  const Features before = weights_;
  Add(x, y, expected);
  Solve();
  const int side = y > predicted * kOff ? 1 : y * kOff < predicted ? -1 : 0;
  off_ = side * off_ > 0 ? off_ + side : side;
  const double now = Predict(x);
  if (Apart(now, y) > kNews || (Apart(predicted, y) > kContradiction && Apart(now, y) > kOff)) {
    // No weights explain both this and what came before.
    Clear();
    weights_ = Rescaled(before, x, y);
    Reshape();
    Add(x, y, std::max(kMinPositive, y));
    Solve();
    off_ = 0;
  } else if (!first && std::abs(off_) >= kInARow) {
    Clear();
    for (const Observation& one : latest_) Add(one.x, one.y, std::max(kMinPositive, one.y));
    Solve();
    off_ = 0;
  }
}

template <size_t N>
void LinearFit<N>::Fit(std::span<const Observation> observations) {
  Clear();
  off_ = 0;
  for (const Observation& one : observations) {
    if (!std::isfinite(one.y) || one.y <= 0) continue;
    Add(one.x, one.y, std::max(kMinPositive, one.y));
    ++observations_;
  }
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = 0; j < N; ++j) squares_[i][j] *= kMeasuredWeight;
    products_[i] *= kMeasuredWeight;
  }
  count_ *= kMeasuredWeight;
  Solve();
}

template class LinearFit<3>;
template class LinearFit<5>;

}  // namespace baton::forecast
