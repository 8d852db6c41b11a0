#include "decode_service/drafting/survival.h"

#include <algorithm>
#include <bit>

namespace baton::decode_service::drafting {

size_t Survival::ClassOf(size_t agreed) {
  const auto width = static_cast<size_t>(std::bit_width(agreed));  // 3 for 4 to 7
  return std::min(kClasses - 1, width < 2 ? 0 : width - 2);
}

double Survival::Chance(size_t agreed) const {
  const size_t at = ClassOf(agreed);
  const double prior = others_ != nullptr ? others_->Chance(agreed) : prior_[at];
  return (right_[at] + weight_ * prior) / (seen_[at] + weight_);
}

void Survival::Observe(size_t agreed, bool right) {
  const size_t at = ClassOf(agreed);
  seen_[at] = kForgetting * seen_[at] + 1;
  right_[at] = kForgetting * right_[at] + (right ? 1 : 0);
}

void Survival::Fade(double rest) {
  for (size_t at = 0; at < kClasses; ++at) {
    seen_[at] *= rest;
    right_[at] *= rest;
  }
}

}  // namespace baton::decode_service::drafting
