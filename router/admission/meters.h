// Meters: the meters of all tenants, shared by the admission controllers of a router's fleets, so that a
// tenant's rates and daily quota hold for all models together. Between the check of a request and its charge
// another fleet may admit one: a limit is exceeded by at most one request per further fleet, and the bucket
// is in debt for it. Any thread.
#pragma once

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "router/admission/meter.h"

namespace baton::router::admission {

class Meters {
 public:
  // Each does for one tenant what Meter's method of the same name does.
  void Configure(TenantId tenant, const TenantLimits& limits, absl::Time now) {
    absl::MutexLock lock(&mutex_);
    meters_[tenant].Configure(limits, now);
  }
  std::optional<Refusal> Check(TenantId tenant, const Meter::Use& use, absl::Time now) {
    absl::MutexLock lock(&mutex_);
    return meters_[tenant].Check(use, now);
  }
  void Charge(TenantId tenant, const Meter::Use& use, absl::Time now) {
    absl::MutexLock lock(&mutex_);
    meters_[tenant].Charge(use, now);
  }
  void Settle(TenantId tenant, const Meter::Use& charged, const Meter::Use& used, int choices,
              absl::Time now) {
    absl::MutexLock lock(&mutex_);
    meters_[tenant].Settle(charged, used, choices, now);
  }
  int64_t ExpectedAnswer(TenantId tenant, int64_t max_tokens) {
    absl::MutexLock lock(&mutex_);
    return meters_[tenant].ExpectedAnswer(max_tokens);
  }
  Meter::Left LeftOver(TenantId tenant, absl::Time now) {
    absl::MutexLock lock(&mutex_);
    const auto found = meters_.find(tenant);
    return found == meters_.end() ? Meter::Left{} : found->second.LeftOver(now);
  }

 private:
  absl::Mutex mutex_;
  absl::node_hash_map<TenantId, Meter> meters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router::admission
