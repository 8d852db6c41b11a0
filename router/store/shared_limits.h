// SharedLimits: has the meters of this router and those of others hold one set of limits, through a store. A
// thread reports what was used here and adopts what the store says is left, every 100 ms while there is use,
// and at once when a 20th of a limit was used. No request waits for the store: a router admits by its own
// copy of each bucket. So what routers admit at the same moment may be more than a limit, by what each admits
// until the store has answered; the bucket is in debt for it then, for all of them, and over time the limit
// holds.
//
// While the store is away each router goes on with its part of every limit, by the number of routers that the
// store saw last, and what it uses is reported when the store is back. A store that was emptied begins with
// full buckets.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "router/admission/meters.h"
#include "router/store/redis.h"
#include "router/store/store_probe.h"

namespace baton::router::store {

class SharedLimits {
 public:
  struct Options {
    StoreOptions store;
    std::string router_id;
  };
  // Clock and probe outlive it.
  SharedLimits(const Options& options, std::shared_ptr<admission::Meters> meters, const Clock& clock,
               StoreProbe& probe);
  // Reports what is left to report.
  ~SharedLimits();

  // The tenant's name, by which the routers know it. Limits of tenants without a name here are not shared.
  void SetTenant(admission::TenantId tenant, const std::string& name);

  // Reports and adopts from now on; has done so once when it returns. A store that is away is no error.
  void Start();

 private:
  // One exchange with the store; the thread's, or before it has begun.
  void Exchange();
  absl::Status Adopt(const Reply& reply);
  bool stopping();

  const std::string router_id_;
  const std::shared_ptr<admission::Meters> meters_;
  const Clock& clock_;
  StoreProbe& probe_;

  absl::Mutex mutex_;
  absl::flat_hash_map<admission::TenantId, std::string> names_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, admission::TenantId> tenants_ ABSL_GUARDED_BY(mutex_);
  // A tenant is new: its buckets may have changed before.
  bool rescan_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's.
  Redis redis_;
  std::string seen_ = "0";  // the store's time of the newest change that was adopted
  int64_t routers_ = 1;
  bool away_ = false;
  bool told_ = false;  // that it is away, or that it is there
  std::thread thread_;
};

}  // namespace baton::router::store
