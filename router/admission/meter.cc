#include "router/admission/meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton::router::admission {

void Bucket::Configure(int64_t amount, absl::Duration period, absl::Time now) {
  if (amount <= 0) {
    *this = {};
    return;
  }
  const double used = limited() ? capacity() - Level(now) : 0;
  amount_ = amount;
  period_ = period;
  per_second_ = static_cast<double>(amount) / absl::ToDoubleSeconds(period);
  level_ = capacity() - used;
  as_of_ = now;
}

double Bucket::Level(absl::Time now) const {
  if (!limited()) return 0;
  const double refill = std::max(0.0, absl::ToDoubleSeconds(now - as_of_)) * per_second_ * share_;
  return std::min(capacity(), level_ + refill);
}

absl::Duration Bucket::Until(int64_t want, absl::Time now) const {
  if (!limited() || want <= 0) return absl::ZeroDuration();
  if (want > amount_) return absl::InfiniteDuration();
  // A wish above a share of the limit passes when that is full. A token's fraction short is rounding.
  const double missing = std::min(static_cast<double>(want), capacity()) - Level(now) - 1e-6;
  return missing <= 0 ? absl::ZeroDuration() : absl::Seconds(missing / (per_second_ * share_));
}

void Bucket::Take(int64_t amount, absl::Time now) {
  if (!limited()) return;
  level_ = Level(now) - static_cast<double>(amount);
  as_of_ = now;
  unreported_ += amount;
}

int64_t Bucket::TakeUnreported(absl::Time now) {
  int64_t used = unreported_;
  if (alone_) used = std::min<int64_t>(used, std::llround(std::ceil(capacity() - Level(now))));
  unreported_ = 0;
  return used;
}

void Bucket::Adopt(double level, absl::Time now) {
  if (!limited()) return;
  level_ = level - static_cast<double>(unreported_);
  as_of_ = now;
}

void Bucket::GoAlone(double share, absl::Time now) {
  if (!limited() || alone_) return;
  level_ = Level(now) * share;
  as_of_ = now;
  share_ = share;
  alone_ = true;
}

void Bucket::EndAlone(absl::Time now) {
  if (!alone_) return;
  const double used = capacity() - Level(now);
  share_ = 1;
  alone_ = false;
  level_ = capacity() - used;
  as_of_ = now;
}

void Meter::Configure(const TenantLimits& limits, absl::Time now) {
  requests_.Configure(limits.requests_per_minute, absl::Minutes(1), now);
  prompt_.Configure(limits.prompt_tokens_per_minute, absl::Minutes(1), now);
  output_.Configure(limits.output_tokens_per_minute, absl::Minutes(1), now);
  quota_.Configure(limits.tokens_per_day, absl::Hours(24), now);
}

std::optional<Refusal> Meter::Check(const Use& use, absl::Time now, std::string_view whose) const {
  const auto check = [now, whose](const Bucket& bucket, int64_t want, Reason reason,
                                  std::string_view what) -> std::optional<Refusal> {
    const absl::Duration until = bucket.Until(want, now);
    if (until == absl::ZeroDuration()) return std::nullopt;
    if (until == absl::InfiniteDuration()) {
      return Refusal{reason,
                     fmt::format("this request takes {} and the {}'s limit is {} {}: it can never pass", want,
                                 whose, bucket.amount(), what),
                     until, std::string(whose)};
    }
    return Refusal{reason,
                   fmt::format("the {}'s limit of {} {} is used up: {} left, and this request takes {}",
                               whose, bucket.amount(), what,
                               static_cast<int64_t>(std::floor(std::max(0.0, bucket.Level(now)))), want),
                   until, std::string(whose)};
  };
  if (auto no = check(requests_, use.requests, Reason::kRequestRate, "requests per minute")) return no;
  if (auto no = check(prompt_, use.prompt_tokens, Reason::kPromptRate, "prompt tokens per minute")) return no;
  // An answer's real length is not known yet, so a reservation is never more than the bucket holds.
  const int64_t output = output_.limited() ? std::min(use.output_tokens, output_.amount()) : 0;
  if (auto no = check(output_, output, Reason::kOutputRate, "output tokens per minute")) return no;
  return check(quota_, use.prompt_tokens + use.output_tokens, Reason::kQuota, "tokens per day");
}

Bucket& Meter::Of(Limit limit) {
  switch (limit) {
    case Limit::kRequests:
      return requests_;
    case Limit::kPromptTokens:
      return prompt_;
    case Limit::kOutputTokens:
      return output_;
    case Limit::kQuota:
      break;
  }
  return quota_;
}

void Meter::Charge(const Use& use, absl::Time now) {
  requests_.Take(use.requests, now);
  prompt_.Take(use.prompt_tokens, now);
  output_.Take(use.output_tokens, now);
  quota_.Take(use.prompt_tokens + use.output_tokens, now);
}

void Meter::Settle(const Use& charged, const Use& used, int choices, absl::Time now) {
  Charge({.requests = used.requests - charged.requests,
          .prompt_tokens = used.prompt_tokens - charged.prompt_tokens,
          .output_tokens = used.output_tokens - charged.output_tokens},
         now);
  constexpr double kWeight = 0.05;
  if (used.output_tokens > 0) {
    answer_tokens_ += kWeight * (static_cast<double>(used.output_tokens) / choices - answer_tokens_);
  }
}

int64_t Meter::ExpectedAnswer(int64_t max_tokens) const {
  return std::clamp<int64_t>(std::llround(answer_tokens_), 1, std::max<int64_t>(1, max_tokens));
}

Meter::Left Meter::LeftOver(absl::Time now) const {
  const auto share = [now](const Bucket& bucket) {
    return bucket.limited() ? std::max(0.0, bucket.Level(now)) / static_cast<double>(bucket.amount()) : 1;
  };
  return {share(requests_), share(prompt_), share(output_), share(quota_)};
}

}  // namespace baton::router::admission
