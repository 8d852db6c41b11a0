// Watcher: keeps one channel and one Worker/Watch stream per listed address, registers each as an endpoint of
// the Fleet, and feeds it. The channels are also the ones that requests go out on, and live as long as one of
// those. One thread at a time; a thread of its own decides when whom to ask; callbacks run on gRPC's threads
// and only move events.
//
// A stream that has a gap in its sequence is begun again at once. One whose connection breaks is begun again
// after 100 ms, by when its channel knows, and the worker stays in the fleet meanwhile: connections also
// break when this process, or its machine, stood still for longer than keepalives wait, and then all at once.
// It is down if the second stream fails, too, or is silent for kPatience.
//
// Workers that are down are asked again after a backoff (100 ms doubling to 1 s), but at most kMostDials at a
// time, and beyond so many kDialsPerSecond, so that a list of dead addresses neither fills the process with
// connections nor keeps it busy: a dial costs it some milliseconds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "router/fleet/fleet.h"

namespace baton::rpc {
class Security;
}

namespace baton::router::fleet {

class Watcher {
 public:
  // How long a new stream may be silent before it is ended: one to a worker that is up, and one to a worker
  // that is down.
  static constexpr absl::Duration kPatience = absl::Seconds(1);
  static constexpr absl::Duration kDialPatience = absl::Seconds(10);
  static constexpr int kMostDials = 64;
  static constexpr int kDialsPerSecond = 100;

  // Silence after which a worker is pinged, and how long the answer may take: together, when its connection
  // counts as broken.
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
  struct Subscription;
  // By time, then by endpoint.
  struct Earlier {
    bool operator()(const Subscription* a, const Subscription* b) const;
  };
  using ByTime = std::set<Subscription*, Earlier>;

  void AskWhenDue();
  void Ask(Subscription& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After its backoff, which doubles.
  void AskLater(Subscription& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It has said something, or its stream has ended.
  void Heard(Subscription& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnEvent(Subscription& worker, const baton::fleet::v1::WatchEvent& event);
  void OnDone(Subscription& worker, const absl::Status& status);
  void Stop(Subscription& worker);
  void Join(Subscription& worker);

  Fleet& fleet_;
  const Keepalive keepalive_;
  const rpc::Security* const security_;  // null: plain text
  const std::function<void()> on_lost_;
  const MonotonicClock clock_{};
  std::map<std::pair<Role, std::string>, std::unique_ptr<Subscription>> subscriptions_;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  // Without a stream, by when the next may begin: workers that are down, and those that are up.
  ByTime down_ ABSL_GUARDED_BY(mutex_), broken_ ABSL_GUARDED_BY(mutex_);
  ByTime unheard_ ABSL_GUARDED_BY(mutex_);   // asked, and silent so far; by when patience ends
  int dialing_ ABSL_GUARDED_BY(mutex_) = 0;  // of the unheard, those that are down
  absl::Time next_dial_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::router::fleet
