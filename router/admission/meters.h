// Meters: the meters of all tenants, shared by the admission controllers of a router's fleets, so that a
// tenant's rates and daily quota hold for all models together. Between the check of a request and its charge
// another fleet may admit one: a limit is exceeded by at most one request per further fleet, and the bucket
// is in debt for it. Any thread.
//
// Several routers may share the limits too: then one thread (router/store/shared_limits.h) reports what was
// used here, and has the meters adopt what the store tells. Requests never wait for it.
//
// A second object of this class has the meters of models that have limits for all tenants together, by the
// model's number; no store shares it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/admission/meter.h"

namespace baton::router::admission {

class Meters {
 public:
  // Each does for one tenant what Meter's method of the same name does.
  void Configure(TenantId tenant, const TenantLimits& limits, absl::Time now);
  std::optional<Refusal> Check(TenantId tenant, const Meter::Use& use, absl::Time now,
                               std::string_view whose = "tenant");
  void Charge(TenantId tenant, const Meter::Use& use, absl::Time now);
  void Settle(TenantId tenant, const Meter::Use& charged, const Meter::Use& used, int choices,
              absl::Time now);
  int64_t ExpectedAnswer(TenantId tenant, int64_t max_tokens);
  Meter::Left LeftOver(TenantId tenant, absl::Time now);

  // The use of one limit since the last report.
  struct Report {
    TenantId tenant;
    Limit limit;
    int64_t amount = 0;  // of the limit, in a period
    absl::Duration period;
    int64_t used = 0;
  };
  // Waits until a 20th of some limit was used since the last report, somebody calls Wake, or this time has
  // passed.
  void AwaitUse(absl::Duration longest);
  void Wake();
  // Reports on the limits that were used since then.
  std::vector<Report> TakeReports(absl::Time now);
  // They did not arrive.
  void PutBack(const std::vector<Report>& reports);
  // As the bucket's methods do. A tenant that isn't known, or has no such limit, is left as it is.
  void Adopt(TenantId tenant, Limit limit, double level, absl::Time now);
  // All tenants, also those that are configured later, until EndAlone.
  void GoAlone(double share, absl::Time now);
  void EndAlone(absl::Time now);

 private:
  void Used(TenantId tenant, Meter& meter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::node_hash_map<TenantId, Meter> meters_ ABSL_GUARDED_BY(mutex_);
  // Tenants with amounts taken or given back since the last report.
  absl::flat_hash_set<TenantId> used_ ABSL_GUARDED_BY(mutex_);
  bool urgent_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<double> share_ ABSL_GUARDED_BY(mutex_);  // while alone
};

}  // namespace baton::router::admission
