// LinearFit: learns y = w0 x0 + w1 x1 + w2 x2 from what was measured, one observation at a time: recursive
// least squares with forgetting (Haykin, "Adaptive Filter Theory", ch. 10). Made for times on real machines:
// an observation far off what is expected moves it no further than kMostSurprise of the expectation, weights
// below zero count as zero, and one that never saw an observation answers with its prior. Plain data, one
// thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace baton::forecast {

class LinearFit {
 public:
  using Features = std::array<double, 3>;
  // An observation counts half as much after about 140 more.
  static constexpr double kForgetting = 0.995;
  static constexpr double kMostSurprise = 4.0;

  // `prior` are the weights to begin with; `scale` is the usual size of each feature, for which the prior is
  // as good as one observation.
  LinearFit(Features prior, Features scale);

  double Predict(const Features& x) const;
  // Not finite or negative values are ignored.
  void Observe(const Features& x, double y);

  int64_t observations() const { return observations_; }
  // Never below zero.
  Features weights() const;
  // Mean of |measured - predicted| / measured over the latest observations; 1 before the first.
  double relative_error() const { return relative_error_; }

 private:
  Features scale_;
  Features weights_;                               // of scaled features
  std::array<std::array<double, 3>, 3> spread_{};  // inverse correlation of the features
  int64_t observations_ = 0;
  double relative_error_ = 1;
};

}  // namespace baton::forecast
