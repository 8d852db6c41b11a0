// ModelWorkers: the workers that serve one model (under one name or several): what finds and watches them,
// what is known of their caches, and the dispatcher that places requests on them. A router has one for each
// model. Start and Stop from one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "router/discovery/discovery.h"
#include "router/dispatch/dispatcher.h"
#include "router/fleet/fleet.h"
#include "router/fleet/watcher.h"
#include "router/index/prefix_index.h"
#include "router/metrics/probe.h"
#include "router/placement/policy.h"

namespace baton::router {

class ModelWorkers {
 public:
  struct Options {
    std::string label;      // in metrics, as `model`; empty: they have no such label
    std::string vllm_name;  // the model's name in metrics under vLLM's names; empty: there are none
    Slo slo;
    int64_t index_bytes = 0;
    fleet::Fleet::Options fleet;
    Dispatcher::Options dispatcher;
    discovery::Discovery::Options finding;
    fleet::Watcher::Keepalive keepalive;
    const rpc::Security* security = nullptr;  // null: plain text
  };

  // Metrics, clock and security outlive it.
  ModelWorkers(Options options, std::unique_ptr<placement::Policy> policy, telemetry::Metrics& metrics,
               const Clock& clock);
  ~ModelWorkers() { Stop(); }

  // Follows the workers from now on; `changed` is called, on any thread, after each change of the fleet, and
  // of Dispatcher::serves. Errors are discovery's.
  absl::Status Start(std::function<void()> changed);
  // Follows them no more. Again does nothing.
  void Stop();

  Probe& probe() { return probe_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  const fleet::Fleet& fleet() const { return fleet_; }

 private:
  const Options options_;
  const Clock& clock_;
  Probe probe_;
  index::PrefixIndex index_;
  fleet::Fleet fleet_;
  Dispatcher dispatcher_;
  std::unique_ptr<discovery::Discovery> discovery_;
  std::unique_ptr<fleet::Watcher> watcher_;
};

}  // namespace baton::router
