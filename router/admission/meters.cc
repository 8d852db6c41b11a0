#include "router/admission/meters.h"

namespace baton::router::admission {
namespace {

constexpr Limit kAllLimits[kLimits] = {Limit::kRequests, Limit::kPromptTokens, Limit::kOutputTokens,
                                       Limit::kQuota};
// A report is due when this part of a limit was used: what several routers admit at once beyond a limit is
// about that much for each.
constexpr int64_t kUrgentPart = 20;

}  // namespace

void Meters::Configure(TenantId tenant, const TenantLimits& limits, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  Meter& meter = meters_[tenant];
  meter.Configure(limits, now);
  if (!share_.has_value()) return;
  for (const Limit limit : kAllLimits) meter.Of(limit).GoAlone(*share_, now);
}

std::optional<Refusal> Meters::Check(TenantId tenant, const Meter::Use& use, absl::Time now,
                                     std::string_view whose) {
  absl::MutexLock lock(&mutex_);
  return meters_[tenant].Check(use, now, whose);
}

void Meters::Charge(TenantId tenant, const Meter::Use& use, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  Meter& meter = meters_[tenant];
  meter.Charge(use, now);
  Used(tenant, meter);
}

void Meters::Settle(TenantId tenant, const Meter::Use& charged, const Meter::Use& used, int choices,
                    absl::Time now) {
  absl::MutexLock lock(&mutex_);
  Meter& meter = meters_[tenant];
  meter.Settle(charged, used, choices, now);
  Used(tenant, meter);
}

int64_t Meters::ExpectedAnswer(TenantId tenant, int64_t max_tokens) {
  absl::MutexLock lock(&mutex_);
  return meters_[tenant].ExpectedAnswer(max_tokens);
}

Meter::Left Meters::LeftOver(TenantId tenant, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const auto found = meters_.find(tenant);
  return found == meters_.end() ? Meter::Left{} : found->second.LeftOver(now);
}

void Meters::Used(TenantId tenant, Meter& meter) {
  for (const Limit limit : kAllLimits) {
    const Bucket& bucket = meter.Of(limit);
    if (bucket.unreported() == 0) continue;
    used_.insert(tenant);
    urgent_ = urgent_ || bucket.unreported() * kUrgentPart >= bucket.amount();
  }
}

void Meters::AwaitUse(absl::Duration longest) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&urgent_), longest);
  urgent_ = false;
}

void Meters::Wake() {
  absl::MutexLock lock(&mutex_);
  urgent_ = true;
}

std::vector<Meters::Report> Meters::TakeReports(absl::Time now) {
  std::vector<Report> reports;
  absl::MutexLock lock(&mutex_);
  for (const TenantId tenant : used_) {
    Meter& meter = meters_[tenant];
    for (const Limit limit : kAllLimits) {
      Bucket& bucket = meter.Of(limit);
      const int64_t used = bucket.TakeUnreported(now);
      if (used == 0) continue;
      reports.push_back({.tenant = tenant,
                         .limit = limit,
                         .amount = bucket.amount(),
                         .period = bucket.period(),
                         .used = used});
    }
  }
  used_.clear();
  return reports;
}

void Meters::PutBack(const std::vector<Report>& reports) {
  absl::MutexLock lock(&mutex_);
  for (const Report& report : reports) {
    Bucket& bucket = meters_[report.tenant].Of(report.limit);
    if (!bucket.limited()) continue;  // it has none any more
    bucket.PutBack(report.used);
    used_.insert(report.tenant);
  }
}

void Meters::Adopt(TenantId tenant, Limit limit, double level, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const auto found = meters_.find(tenant);
  if (found != meters_.end()) found->second.Of(limit).Adopt(level, now);
}

void Meters::GoAlone(double share, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  share_ = share;
  for (auto& [tenant, meter] : meters_) {
    for (const Limit limit : kAllLimits) meter.Of(limit).GoAlone(share, now);
  }
}

void Meters::EndAlone(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  share_.reset();
  for (auto& [tenant, meter] : meters_) {
    for (const Limit limit : kAllLimits) meter.Of(limit).EndAlone(now);
  }
}

}  // namespace baton::router::admission
