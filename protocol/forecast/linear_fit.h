// LinearFit: learns y = w0 x0 + w1 x1 + ... from what was measured, one observation at a time: least squares
// of the relative error with forgetting, kept near the shape of a prior (its weights up to one common factor)
// as long as few observations contradict it. It is made for times on real machines: the first observation
// sets the factor, three are enough to be within 1.5 times on any machine, and a machine that has become
// slower or quicker is followed at once. Weights are never below zero; without an observation it answers with
// its prior. Plain data, one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace baton::forecast {

// How many machines the observations come from.
enum class Of {
  kOne,   // an observation that contradicts all earlier ones means that the machine has changed
  kMany,  // the mean of unlike machines: an observation far off counts as at most kMaxSurprise expectations
};

// For 3 and 5 features (linear_fit.cc).
template <size_t N>
class LinearFit {
 public:
  using Features = std::array<double, N>;
  struct Observation {
    Features x;
    double y;
  };
  // An observation counts half as much after about 140 more.
  static constexpr double kForgetting = 0.995;
  static constexpr double kMaxSurprise = 4.0;
  // The first observations, which are taken as they are.
  static constexpr int64_t kFirst = 3;
  // So far off, whatever the weights: the factor has changed, by kMaxChange at most. (On a busy machine the
  // same takes half of the mean now and twice as long then: that is no news.)
  static constexpr double kNews = 6.0;
  static constexpr double kMaxChange = 100.0;
  // And an observation that was expected to take a tenth of its time counts in full.
  static constexpr double kContradiction = 10.0;
  // So far off to the same side this many times in a row: what came before is out of date.
  static constexpr double kOff = 1.5;
  static constexpr int kInARow = 3;

  // `prior` are the weights to begin with; `scale` is the usual size of each feature.
  LinearFit(const Features& prior, const Features& scale, Of of = Of::kOne);

  double Predict(const Features& x) const;
  // Not finite or not positive values are ignored.
  void Observe(const Features& x, double y);
  // Replaces all earlier observations by these, which were measured on purpose and count alike.
  void Fit(std::span<const Observation> observations);

  int64_t observations() const { return observations_; }
  // Never below zero.
  Features weights() const;
  // Mean of |measured - predicted| / measured over the latest observations; 1 before the first.
  double relative_error() const { return relative_error_; }

 private:
  // Forgets the observations. The proportions of weights that they gave stay, if they were many.
  void Clear();
  void Reshape();
  // The weights after a machine has become slower or quicker: each times the factor by which `y` is off, to
  // the power of the share that the weight has in `x`. A prompt of few tokens tells of the base and nothing
  // of the cost of a token.
  Features Rescaled(Features weights, const Features& x, double y) const;
  // An observation that counts by one over the square of `expected`.
  void Add(const Features& x, double y, double expected);
  void Solve();

  Of of_;
  Features scale_;
  Features middle_;   // of scaled features: what the weights are without observations, but for a factor
  Features shape_;    // the same, none of them too small: how far a weight may lie from its middle
  Features weights_;  // likewise
  // Sums over observations, of features and values over the expected value: u uT, and u y.
  std::array<Features, N> squares_{};
  Features products_{};
  double count_ = 0;  // of them, as they count now
  double noise_ = 0;  // mean square of the relative error, but for the first few and news
  std::array<Observation, kInARow> latest_{};
  int off_ = 0;  // in a row: above what was predicted, or, negative, below
  int64_t observations_ = 0;
  double relative_error_ = 1;
};

extern template class LinearFit<3>;
extern template class LinearFit<5>;

}  // namespace baton::forecast
