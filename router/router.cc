#include "router/router.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/quote.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/rpc/security.h"
#include "common/rpc/server.h"
#include "router/api/executor.h"
#include "router/api/grpc_decode_client.h"
#include "router/api/model_registry.h"
#include "router/api/request_driver.h"
#include "router/api/request_preparer.h"
#include "router/api/service.h"
#include "router/api/validation.h"
#include "router/billing/ledger.h"
#include "router/billing/price_file.h"
#include "router/discovery/discovery.h"
#include "router/fleet/watcher.h"
#include "router/tenancy/authenticator.h"

namespace baton::router {
namespace {

absl::StatusOr<ModelRegistry> LoadModels(const std::vector<RouterOptions::Model>& models) {
  std::vector<ServedModel> served;
  for (const RouterOptions::Model& model : models) {
    BATON_ASSIGN_OR_RETURN(served.emplace_back(),
                           ServedModel::Load(model.folder, model.name, model.output_format));
    const output::FormatChoice& choice = served.back().output;
    spdlog::info("model {}: output format {}, {} tool calls, {} thinking", served.back().name,
                 choice.format->name, choice.tools ? "with" : "without",
                 choice.thinking ? "with" : "without");
    for (const std::string_view part : served.back().unstable_history) {
      spdlog::warn(
          "model {}: its chat template writes {} of earlier turns otherwise than the model does: the KV of "
          "an answer with it "
          "is not found again in the next turn (ModelInfo.unstable_history)",
          served.back().name, part);
    }
    // The fleet's workers have one fingerprint: those of another model would be left out.
    if (served.back().config == served.front().config) continue;
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" and \"{}\" are different models, and the workers of one fleet serve one: start a "
                    "router for each",
                    served.front().name, served.back().name));
  }
  return ModelRegistry::Create(std::move(served));
}

// The prices of a file, if one is named, after a look whether any request for a model could cost more than is
// counted.
absl::StatusOr<std::unique_ptr<billing::PriceFile>> OpenPrices(const std::string& path,
                                                               const ModelRegistry& models) {
  if (path.empty()) return nullptr;
  return billing::PriceFile::Open(path, [path, &models](const billing::PriceTable& table) -> absl::Status {
    for (const auto& model : models.models()) {
      const billing::Price* const price = table.Find(model->name);
      if (price == nullptr) {
        spdlog::warn("{}: no price for {}: its requests have no cost", path, model->name);
        continue;
      }
      // A prompt, and as many answers as a request may have.
      const absl::Status fits = billing::CheckPrice(*price, (1 + kMaxChoices) * model->context);
      if (fits.ok()) continue;
      return absl::InvalidArgumentError(
          fmt::format("{}: models.{}: {}", path, Quoted(model->name), std::string(fits.message())));
    }
    return absl::OkStatus();
  });
}

// `model`: any of those that the fleet serves.
fleet::Fleet::Options FleetOptions(const ServedModel& model) {
  fleet::Fleet::Options result;
  result.router_id = fmt::format("{:016x}", RandomU64());
  result.vocabulary = model.vocabulary;
  return result;
}

}  // namespace

// In the order in which they are built; destroyed the other way round.
struct Router::Parts {
  Parts(const RouterOptions& options, ModelRegistry registry, std::unique_ptr<placement::Policy> policy)
      : drain(options.drain),
        models(std::move(registry)),
        probe(metrics, options.slo),
        index({.max_bytes = options.index_bytes}),
        fleet(FleetOptions(models.default_model()), probe, &index),
        preparer(models, [] { return RandomU64(); }),
        executor({.threads = options.tokenizer_threads,
                  .clock = &clock,
                  .dropped = [this] { probe.PreparationDropped(); }}),
        dispatcher(options.dispatcher, fleet, std::move(policy), clock, probe, &index) {
    context.preparer = &preparer;
    context.dispatcher = &dispatcher;
    context.fleet = &fleet;
    context.decode = &decode_client;
    context.executor = &executor;
    context.clock = &clock;
    context.probe = &probe;
    context.live = &live;
    context.sessions = &sessions;
    context.router_id = fleet.router_id();
    context.max_attempts = options.max_attempts;
    context.max_migrations = options.max_migrations;
    context.client_stall = options.client_stall;
    live.Watch(options.client_stall);
  }
  // Discovery tells the watcher what to follow, so it ends first.
  ~Parts() {
    if (discovery != nullptr) discovery->Stop();
  }

  // The health service follows the fleet.
  void FollowFleet() {
    absl::MutexLock lock(&health_mutex);
    const bool serving = !fleet.view()->decode.empty();
    if (server == nullptr || stopping || serving == said_serving) return;
    said_serving = serving;
    server->SetServing(serving);
  }

  const absl::Duration drain;
  telemetry::Metrics metrics;
  std::unique_ptr<telemetry::Tracing> tracing;
  MonotonicClock clock;
  std::shared_ptr<const rpc::Security> security;
  const ModelRegistry models;
  Probe probe;
  index::PrefixIndex index;
  fleet::Fleet fleet;
  RequestPreparer preparer;
  GrpcDecodeClient decode_client{clock};
  LiveCalls live{clock};
  SessionPrompts sessions;
  CallContext context;
  Executor executor;
  Dispatcher dispatcher;
  std::unique_ptr<Tenants> tenants;
  billing::LedgerProbe ledger_probe{metrics};
  // Calls end on its thread: it goes after the server.
  std::unique_ptr<billing::Ledger> ledger;     // null: nothing is recorded
  std::unique_ptr<billing::PriceFile> prices;  // null: no model has a price
  std::unique_ptr<Authenticator> authenticator;
  std::unique_ptr<discovery::Discovery> discovery;
  std::unique_ptr<fleet::Watcher> watcher;
  std::unique_ptr<InferenceService> service;
  absl::Mutex health_mutex;
  std::unique_ptr<rpc::Server> server;
  bool said_serving ABSL_GUARDED_BY(health_mutex) = true;  // what a new server says
  bool stopping ABSL_GUARDED_BY(health_mutex) = false;
};

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto security, rpc::Security::Load(options.security));
  BATON_ASSIGN_OR_RETURN(ModelRegistry models, LoadModels(options.models));
  BATON_ASSIGN_OR_RETURN(auto policy, placement::MakePolicy(options.policy, RandomU64(),
                                                            forecast::QueueTargets::For(
                                                                options.slo.ttft_seconds, options.tail_share),
                                                            options.slo.tpot_seconds));
  auto parts = std::make_unique<Parts>(options, std::move(models), std::move(policy));
  Parts* const all = parts.get();
  all->security = security;
  BATON_ASSIGN_OR_RETURN(all->tracing, telemetry::Tracing::Start(options.tracing, "baton-router",
                                                                 all->fleet.router_id(), all->metrics));
  all->context.tracer = &all->tracing->tracer();
  BATON_ASSIGN_OR_RETURN(all->tenants, Tenants::Open(options.tenants, [all](const Tenant& tenant) {
                           all->dispatcher.SetTenant(tenant.id, tenant.label, tenant.limits);
                         }));
  all->tenants->Watch();
  all->authenticator = std::make_unique<Authenticator>(*all->tenants, all->probe);
  all->context.authenticator = all->authenticator.get();
  if (!options.ledger.empty() || !options.audit_log.empty()) {
    BATON_ASSIGN_OR_RETURN(
        all->ledger, billing::Ledger::Open({.ledger_file = options.ledger, .audit_file = options.audit_log},
                                           all->ledger_probe));
  }
  all->context.ledger = all->ledger.get();
  BATON_ASSIGN_OR_RETURN(all->prices, OpenPrices(options.prices, all->models));
  if (all->prices != nullptr) all->prices->Watch();
  all->context.prices = all->prices.get();
  all->fleet.SetListener([all] {
    all->dispatcher.Pump();
    all->FollowFleet();
  });
  discovery::Discovery::Options finding;
  finding.decode = options.decode;
  finding.prefill = options.prefill;
  finding.fleet_file = options.fleet_file;
  finding.resolve_every = options.resolve_interval;
  BATON_ASSIGN_OR_RETURN(all->discovery,
                         discovery::Discovery::Open(finding, nullptr, all->clock, [all](const auto& found) {
                           // In this order: the fleet isn't settled before new endpoints have answered.
                           all->watcher->Follow(found.decode, found.prefill);
                           all->fleet.SetListing({.complete = found.complete, .trouble = found.trouble});
                         }));
  all->watcher = std::make_unique<fleet::Watcher>(
      all->fleet, fleet::Watcher::Keepalive{options.keepalive.interval, options.keepalive.timeout},
      security.get(), [all] { all->discovery->Hurry(); });
  all->discovery->Start();
  all->dispatcher.StartTicking();
  all->service = std::make_unique<InferenceService>(all->context, all->fleet);
  rpc::ServerOptions listening;
  listening.listen = options.listen;
  listening.health_listen = options.health_listen;
  listening.security = security;
  listening.is_public = true;
  listening.keepalive = options.client_keepalive;
  listening.connections = options.connections;
  BATON_ASSIGN_OR_RETURN(auto server, rpc::Server::Start(listening, {all->service.get()}));
  {
    absl::MutexLock lock(&all->health_mutex);
    all->server = std::move(server);
  }
  all->FollowFleet();
  return std::unique_ptr<Router>(new Router(std::move(parts)));
}

Router::Router(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Router::~Router() { Stop(); }

void Router::Stop() {
  {
    absl::MutexLock lock(&parts_->health_mutex);
    if (parts_->stopping) return;
    parts_->stopping = true;
    // Balancers and kubelets hear of it while running requests end.
    parts_->server->SetServing(false);
  }
  parts_->probe.Draining();
  parts_->server->Shutdown(parts_->drain);
  // Decode calls end a moment after the clients' calls that they were for.
  parts_->live.WaitUntilNone();
  parts_->discovery->Stop();
  parts_->watcher = nullptr;
}

const std::string& Router::address() const { return parts_->server->address(); }
const telemetry::Metrics& Router::metrics() const { return parts_->metrics; }
const fleet::Fleet& Router::fleet() const { return parts_->fleet; }

}  // namespace baton::router
