// Watcher: keeps one channel and one Worker/Watch stream per seat and feeds the Fleet. A stream that breaks
// is begun again after a backoff (100 ms doubling to 1 s); one with a gap in its sequence at once. The
// channels are also the ones that requests go out on. Any thread; callbacks run on gRPC's threads and only
// move events.
#pragma once

#include <memory>
#include <vector>

#include "router/fleet/fleet.h"

namespace grpc {
class Channel;
}
namespace baton::rpc {
class Security;
}

namespace baton::router::fleet {

class Watcher {
 public:
  // Silence after which a worker is pinged, and how long the answer may take: together, when it counts as
  // dead.
  struct Keepalive {
    absl::Duration interval;
    absl::Duration timeout;
  };
  // `fleet` outlives the watcher. Streams start at once.
  // With `security` (null: none) towards the workers.
  Watcher(Fleet* fleet, Keepalive keepalive, const rpc::Security* security = nullptr);
  // Ends the streams and waits for their end.
  ~Watcher();

  const std::shared_ptr<grpc::Channel>& channel(int seat) const;

 private:
  class Subscription;
  std::vector<std::unique_ptr<Subscription>> subscriptions_;
};

}  // namespace baton::router::fleet
