// RunningRequests: the requests under way that clients have given names, so that a call of Abort ends them.
// Names are a tenant's own: nobody ends another's. Two requests may have one name, and end together. As many
// are here as run. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/admission/tenant_limits.h"

namespace baton::router::vllm {

class RunningRequests {
 public:
  // Ends a request; any thread, any number of times.
  using End = std::function<void()>;
  // The request is here as long as this lives.
  using Guard = std::shared_ptr<void>;

  Guard Add(admission::TenantId tenant, const std::string& id, End end);
  // Ends all of this name.
  void Abort(admission::TenantId tenant, const std::string& id);

 private:
  using Key = std::pair<admission::TenantId, std::string>;
  using Ends = std::multimap<Key, std::shared_ptr<const End>>;

  absl::Mutex mutex_;
  Ends ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router::vllm
