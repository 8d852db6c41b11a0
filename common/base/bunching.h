// Bunching: whether what should come evenly comes in bunches, as tokens do that waited on their way and then
// travelled together. Counts the gaps that are shorter than a tenth of the mean gap up to then. Plain data of
// whoever sees the gaps, one thread at a time; keeps none of them.
#pragma once

#include <cstdint>

namespace baton {

class Bunching {
 public:
  static constexpr double kTenth = 0.1;

  // The time since the one before, in seconds.
  void Add(double gap) {
    seconds_ += gap;
    ++gaps_;
    if (gap < kTenth * seconds_ / static_cast<double>(gaps_)) ++short_;
  }
  int64_t gaps() const { return gaps_; }
  // Of the gaps, in [0, 1]: 0 where all are about equal, or there are none.
  double share() const { return gaps_ == 0 ? 0 : static_cast<double>(short_) / static_cast<double>(gaps_); }

 private:
  double seconds_ = 0;
  int64_t gaps_ = 0;
  int64_t short_ = 0;
};

}  // namespace baton
