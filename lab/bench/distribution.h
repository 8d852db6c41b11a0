// Distribution: how lengths and times of a load test are distributed. Plain data, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "lab/bench/draws.h"

namespace baton::lab::bench {

class Distribution {
 public:
  // "N" or "fixed:N", "uniform:A:B" (both ends included), "normal:MEAN:STDDEV", "lognormal:MEDIAN:SIGMA"
  // (SIGMA of the logarithm). INVALID_ARGUMENT says which of them is meant and what is wrong.
  static absl::StatusOr<Distribution> Parse(std::string_view text);
  static Distribution Fixed(double value);

  // Never below 0.
  double Sample(uint64_t seed, Purpose purpose, uint64_t index) const;
  // Rounded to a whole number of at least `min`.
  int64_t SampleCount(uint64_t seed, Purpose purpose, uint64_t index, int64_t min = 1) const;

 private:
  enum class Shape { kFixed, kUniform, kNormal, kLogNormal };
  Distribution(Shape shape, double a, double b) : shape_(shape), a_(a), b_(b) {}

  Shape shape_;
  double a_;
  double b_;
};

}  // namespace baton::lab::bench
