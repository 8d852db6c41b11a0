// Router: all parts of the router in one object, as main and the integration tests start it: models, fleet,
// dispatcher, gRPC server. Start and Stop from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/connection_ledger.h"
#include "common/rpc/security_options.h"
#include "common/telemetry/metrics.h"
#include "common/telemetry/tracing.h"
#include "router/dispatch/dispatcher.h"
#include "router/fleet/fleet.h"
#include "router/moderation/rules.h"
#include "router/store/redis.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

struct RouterOptions {
  struct Model {
    std::string folder;
    std::string name;  // that requests use; empty: the folder's name
    // How it writes thinking and tool calls (docs/output-formats.md); empty: found by its template.
    std::string output_format;
    // It judges texts, and writes verdicts of this format (docs/moderation.md); empty: it is no classifier.
    std::string classifier;
    // The tenants that may use it and see it; empty: all.
    std::vector<std::string> tenants;
    // The most tokens of an answer, and what all tenants together may ask of it in this router; 0: no limit.
    int64_t max_tokens = 0;
    // The same for requests that name no number; 0: the model's own default, at most max_tokens.
    int64_t default_max_tokens = 0;
    int64_t requests_per_minute = 0;
    int64_t prompt_tokens_per_minute = 0;
    int64_t output_tokens_per_minute = 0;
    // Its own workers, written as below. None: those below.
    std::vector<std::string> decode;
    std::vector<std::string> prefill;
    std::string fleet_file;
    bool HasWorkers() const { return !decode.empty() || !prefill.empty() || !fleet_file.empty(); }
  };
  // What it serves, by name; the first is for requests that name no model. Those with the same workers share
  // one fleet: they are names of one model, and their folders have one configuration.
  std::vector<Model> models;
  // What every tenant's requests have at least, if the tenants file has nothing else for it; by the first
  // classifier of the models.
  moderation::Rules moderation;
  // Of the models that name none: addresses and DNS names of workers, a file of more of them, and how often
  // names are resolved (discovery/). At least one decode entry or a file.
  std::vector<std::string> decode;
  std::vector<std::string> prefill;
  std::string fleet_file;
  absl::Duration resolve_interval = absl::Seconds(5);
  std::string listen = "127.0.0.1:0";
  std::string health_listen;  // empty: no port for health checks alone
  std::string policy = "prefix_affinity";
  // Who may call (tenants.h). Without a file, anyone.
  Tenants::Options tenants;
  // What models cost (billing/price.h), by a file; empty: nothing has a price.
  std::string prices;
  // By what several routers share tenants' rates and quotas (store/shared_limits.h); none: each has its own.
  std::optional<store::StoreOptions> store;
  // The sums of what was used, and a line for each request (billing/ledger.h); empty: none are kept. A ledger
  // of kStoreLedger is kept in the store.
  static constexpr std::string_view kStoreLedger = "store";
  std::string ledger;
  std::string audit_log;
  // Where spans go, and of which requests.
  telemetry::TracingOptions tracing;
  // What it shows to clients and workers, and whose certificates it accepts.
  rpc::SecurityOptions security;
  // The prefix indexes of all fleets take at most this much memory; each has the same share.
  int64_t index_bytes = int64_t{1} << 30;
  int tokenizer_threads = 2;
  int max_attempts = 3;
  int max_migrations = 3;
  // A client that takes no message for so long is given up.
  absl::Duration client_stall = absl::Seconds(30);
  // baton_router_answers_total judges by it, and workers are told of it.
  Slo slo;
  // The load of each fleet is shown under vLLM's names too (docs/inference-gateway.md).
  bool vllm_metrics = false;
  // Of the order of prefill queues (forecast::QueueTargets).
  double tail_share = forecast::kDefaultTailShare;
  Dispatcher::Options dispatcher;
  // Of the links to workers, and to clients.
  rpc::Keepalive keepalive = {.interval = absl::Seconds(1), .timeout = absl::Seconds(1)};
  rpc::Keepalive client_keepalive = rpc::kPublicKeepalive;
  // How many clients may be connected, and when a client is asked to connect anew
  // (rpc::ServerOptions::max_connection_age).
  rpc::ConnectionLimits connections;
  absl::Duration max_connection_age = absl::InfiniteDuration();
  // How long Stop waits for running requests.
  absl::Duration drain = absl::Seconds(10);
};

class Router {
 public:
  // Watches and listens when this returns; the health service says SERVING while a decode worker of
  // any model is up: a balancer that took the router out because one model has none would end the others too.
  // The name "baton.v1.Inference/MODEL" tells of one model.
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterOptions& options);
  ~Router();

  // host:port of the public endpoint.
  const std::string& address() const;
  // host:port of the port for health checks alone; empty: there is none.
  const std::string& health_address() const;
  const telemetry::Metrics& metrics() const;
  // The workers of the model with this name; empty: of the default. CHECK-fails if there is none.
  const fleet::Fleet& fleet(std::string_view model = "") const;

  // No new requests; what runs may end within the drain time, the rest is cancelled. Also done by the
  // destructor.
  void Stop();

 private:
  struct Parts;
  explicit Router(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::router
