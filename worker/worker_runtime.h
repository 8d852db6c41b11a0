// WorkerRuntime: what every worker is made of besides its own scheduler and service: the engine and its loop,
// the watch stream, the metrics page, the link, peer fetch and the gRPC server, started and ended in the
// right order. Create, Serve, Drain and Stop: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/security.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "common/telemetry/tracing.h"
#include "engine/device/core_share.h"
#include "engine/engine.h"
#include "engine/loop.h"
#include "transfer/fetch/peer_fetch.h"
#include "worker/disk_cache.h"
#include "worker/expert_probe.h"
#include "worker/flags.h"
#include "worker/kv_link.h"
#include "worker/lease_probe.h"
#include "worker/stepper.h"
#include "worker/watch_hub.h"
#include "worker/worker_service.h"

namespace baton::worker {

class WorkerRuntime {
 public:
  // Binds the address, where callers hear from now on that the worker is starting; then loads the model,
  // measures what a step takes, and opens the link. `role_name` begins the worker's id if it was given none.
  static absl::StatusOr<std::unique_ptr<WorkerRuntime>> Create(const Options& options, fleet::v1::Role role,
                                                               const std::string& role_name);
  // Stop has been called, or Serve has not.
  ~WorkerRuntime();

  engine::Engine& engine() { return *engine_; }
  // As measured at the start.
  const forecast::StepCost& step_cost() const { return step_cost_; }
  // What the engine computes on, with others of its machine; null: on cores of its own.
  device::CoreShare* cores() { return cores_.get(); }
  engine::Loop& loop() { return loop_; }
  WatchHub& hub() { return hub_; }
  KvLink& link() { return *link_; }
  telemetry::Metrics& metrics() { return metrics_; }
  const Clock& clock() const { return clock_; }
  const telemetry::Tracer& tracer() const { return tracing_->tracer(); }
  // What calls to peers go out with, and what their calls are checked by.
  rpc::PeerOptions peer_options() const {
    return {.security = *security_, .keepalive = options_.keepalive.value_or(rpc::Keepalive())};
  }
  const rpc::PeerCheck& peers() const { return peers_; }
  // Peer fetch, if this worker takes part, and its disk, if it has one.
  fetch::PeerFetch peer_fetch() const;
  const std::string& worker_id() const { return hub_.info().worker_id(); }
  Incarnation incarnation() const { return Incarnation(hub_.info().incarnation()); }

  // Listens, and runs the steppers, one after the other, on the engine thread from now on. They outlive Stop.
  // Unless `ready`, health checks and watchers hear that it takes no work, until SetReady. Several steppers
  // need an engine whose steps do not overlap: each completes its step before the next begins its own.
  absl::Status Serve(std::vector<Stepper*> steppers, bool ready = true);
  // Any thread, once.
  void SetReady();
  const std::string& address() const { return server_->address(); }
  // Empty without a metrics page.
  const std::string& metrics_address() const { return metrics_address_; }

  // Refuses new work and waits up to `grace` for what runs.
  void Drain(absl::Duration grace);
  // Ends what still runs with `status`, then everything.
  void Stop(const absl::Status& status);

 private:
  struct PeerFetchParts;
  WorkerRuntime(const Options& options, std::shared_ptr<const rpc::Security> security,
                std::unique_ptr<device::CoreShare> cores, std::unique_ptr<engine::Engine> engine,
                const forecast::StepCost& step_cost, fleet::v1::WorkerInfo info);
  bool Step();
  void SetTargets(const forecast::LatencyTargets& targets, const std::string& router_id);
  // Has each role step, unless the gate holds them. Returns whether there is more to do at once.
  bool StepRoles();

  const Options options_;
  const std::shared_ptr<const rpc::Security> security_;
  const std::unique_ptr<device::CoreShare> cores_;  // null: its cores are its own
  const std::unique_ptr<engine::Engine> engine_;
  const forecast::StepCost step_cost_;
  MonotonicClock clock_;
  telemetry::Metrics metrics_;
  std::unique_ptr<telemetry::Tracing> tracing_;
  const rpc::PeerCheck peers_;
  prometheus::Gauge& draining_ = metrics_.Gauge("baton_draining", "1: takes no new work");
  LeaseProbe leases_{metrics_};
  std::optional<ExpertProbe> experts_;  // nothing: all are in memory
  WatchHub hub_;
  engine::Loop loop_;
  forecast::LatencyTargets targets_;  // engine thread
  WorkerService worker_service_{hub_, loop_, peers_,
                                [this](const forecast::LatencyTargets& targets, const std::string& router) {
                                  SetTargets(targets, router);
                                }};
  std::unique_ptr<KvLink> link_;
  std::unique_ptr<PeerFetchParts> fetch_parts_;  // null: takes no part
  std::unique_ptr<DiskCache> disk_;              // null: it keeps no blocks on disk
  std::unique_ptr<telemetry::MetricsServer> metrics_server_;
  std::string metrics_address_;
  std::unique_ptr<rpc::StartingServer> starting_;  // null once it serves
  std::unique_ptr<rpc::Server> server_;
  std::vector<Stepper*> steppers_;  // constant once it serves
  std::string link_fault_;          // as it was told last; engine thread
  bool held_ = false;               // by the gate, at the last step; engine thread
  absl::Mutex serving_;
  bool drained_ ABSL_GUARDED_BY(serving_) = false;  // and will not be ready any more
};

}  // namespace baton::worker
