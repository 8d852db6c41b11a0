// Meter: what one tenant has used of its rates and its daily quota. Token buckets: each holds at most what
// its period allows and refills evenly. Prompts are charged when a request is admitted; of the answer what
// answers lately were long is reserved and, at the end, settled by what it really was, which may leave a
// bucket in debt. Plain, without a lock or a clock.
//
// Several routers may share limits through a store (router/store): then a bucket is this router's copy. It
// counts what was taken from it since that was last reported, and adopts the level that the store tells, in
// which the others' use is counted. While the store is away, a copy is this router's part of the bucket.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "router/admission/refusal.h"
#include "router/admission/tenant_limits.h"

namespace baton::router::admission {

// The limits of a tenant.
enum class Limit { kRequests, kPromptTokens, kOutputTokens, kQuota };
inline constexpr int kLimits = static_cast<int>(Limit::kQuota) + 1;

// One limit. Unlimited until configured.
class Bucket {
 public:
  // `amount` per `period`, 0 for no limit. Begins full; a change keeps what was used.
  void Configure(int64_t amount, absl::Duration period, absl::Time now);
  bool limited() const { return amount_ > 0; }
  int64_t amount() const { return amount_; }
  absl::Duration period() const { return period_; }
  // The amount that may be taken now; negative in debt.
  double Level(absl::Time now) const;
  // How long until `want` may be taken; zero: now. Infinite: it is more than the bucket holds.
  absl::Duration Until(int64_t want, absl::Time now) const;
  // Below zero too. A negative amount gives back.
  void Take(int64_t amount, absl::Time now);

  // The amount taken since the last report; negative if more was given back.
  int64_t unreported() const { return unreported_; }
  // The same, and from now on it counts as reported. Of what was taken alone, no more than what the bucket
  // has not refilled: the rest is past, and the others' copies have refilled too.
  int64_t TakeUnreported(absl::Time now);
  // A report that failed.
  void PutBack(int64_t used) { unreported_ += used; }
  // `level`: of all routers' bucket, with all that was reported taken from it.
  void Adopt(double level, absl::Time now);
  // From now on the bucket holds this share of the limit, and refills by it; in (0, 1]. Again does nothing.
  void GoAlone(double share, absl::Time now);
  // It holds the whole limit again. What was used stays used.
  void EndAlone(absl::Time now);

 private:
  double capacity() const { return static_cast<double>(amount_) * share_; }

  int64_t amount_ = 0;
  absl::Duration period_;
  double per_second_ = 0;  // of the whole limit
  bool alone_ = false;
  double share_ = 1;
  double level_ = 0;
  absl::Time as_of_;
  int64_t unreported_ = 0;
};

class Meter {
 public:
  // A request's wanted or used amounts.
  struct Use {
    int64_t requests = 0;
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
  };

  void Configure(const TenantLimits& limits, absl::Time now);
  // The first limit that `use` would break. Takes nothing. `whose` is for the message.
  std::optional<Refusal> Check(const Use& use, absl::Time now, std::string_view whose = "tenant") const;
  void Charge(const Use& use, absl::Time now);
  // A request of so many choices ended: it was charged `charged` and used `used`. Never refused.
  void Settle(const Use& charged, const Use& used, int choices, absl::Time now);

  Bucket& Of(Limit limit);

  // Tokens to reserve for an answer of at most `max_tokens`.
  int64_t ExpectedAnswer(int64_t max_tokens) const;

  // For the gauges: the share of each limit that is left, 1 without one.
  struct Left {
    double requests = 1;
    double prompt_tokens = 1;
    double output_tokens = 1;
    double quota = 1;
  };
  Left LeftOver(absl::Time now) const;

 private:
  Bucket requests_;
  Bucket prompt_;
  Bucket output_;
  Bucket quota_;
  double answer_tokens_ = 256;  // exponential mean of what answers were long
};

}  // namespace baton::router::admission
