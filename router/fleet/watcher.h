// Watcher: keeps one channel and one Worker/Watch stream per listed address, registers each as an endpoint of
// the Fleet, and feeds it. A stream that breaks is begun again after a backoff (100 ms doubling to 1 s); one
// with a gap in its sequence at once. The channels are also the ones that requests go out on, and live as
// long as one of those. One thread at a time; callbacks run on gRPC's threads and only move events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "router/fleet/fleet.h"

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
  // `fleet` outlives the watcher, and so does `security` (null: none) towards the workers. `on_lost` hears,
  // on gRPC's threads, of each worker that was up and can't be reached any more.
  Watcher(Fleet& fleet, Keepalive keepalive, const rpc::Security* security = nullptr,
          std::function<void()> on_lost = nullptr);
  // Ends the streams and waits for their end.
  ~Watcher();

  // The addresses to watch from now on, each host:port once per role. New ones are registered as endpoints,
  // in this order; those that are missing lose theirs, once their stream has ended, which this waits for.
  void Follow(std::span<const std::string> decode, std::span<const std::string> prefill);

 private:
  class Subscription;

  Fleet& fleet_;
  const Keepalive keepalive_;
  const rpc::Security* const security_;  // null: plain text
  const std::function<void()> on_lost_;
  std::map<std::pair<Role, std::string>, std::unique_ptr<Subscription>> subscriptions_;
};

}  // namespace baton::router::fleet
