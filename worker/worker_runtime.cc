#include "worker/worker_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "engine/measure.h"
#include "spdlog/spdlog.h"
#include "transfer/fetch/blocks_service.h"
#include "transfer/fetch/fetcher.h"
#include "transfer/fetch/peer_server.h"
#include "worker/chunk_gate.h"
#include "worker/step_gate.h"

namespace baton::worker {
namespace {

// How long a worker that leaves may write to its disk what was used lately.
constexpr absl::Duration kDiskFlush = absl::Seconds(5);
// How long a worker without work rests.
constexpr absl::Duration kIdleRest = absl::Seconds(1);
// How long a worker rests that is held: nobody wakes it when its gate opens.
constexpr absl::Duration kHeldRest = absl::Milliseconds(1);

// Requests and events on their way to the engine thread.
constexpr size_t kMailboxCapacity = 4096;

// The share of this name; null if it is empty, or can't be had: then the worker has threads of its own.
std::unique_ptr<device::CoreShare> JoinCores(const std::string& name) {
  if (name.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<device::CoreShare>> joined = device::CoreShare::Join(name);
  if (joined.ok()) return *std::move(joined);
  spdlog::warn("it shares no cores with the other workers of this machine: {}",
               std::string(joined.status().message()));
  return nullptr;
}

rpc::ServerOptions ListeningOf(const Options& options, std::shared_ptr<const rpc::Security> security) {
  return {.listen = options.listen,
          .health_listen = options.health_listen,
          .security = std::move(security),
          .keepalive = options.keepalive.value_or(rpc::kServerKeepalive)};
}

}  // namespace

// In the order of construction: what comes later uses what comes before. Blocks go from peer to peer over the
// host link, whatever hand-offs go by.
struct WorkerRuntime::PeerFetchParts {
  fetch::Probe probe;
  fetch::GrpcFetchClient client;
  fetch::Fetcher fetcher;
  fetch::PeerServer server;
  fetch::BlocksService service;

  explicit PeerFetchParts(WorkerRuntime& runtime)
      : probe(runtime.metrics_, runtime.link_->host_sender().name()),
        client(runtime.loop_, runtime.peer_options()),
        fetcher({.worker_id = runtime.worker_id(),
                 .incarnation = runtime.incarnation(),
                 .always = runtime.options_.peer_fetch == "always"},
                *runtime.engine_, runtime.link_->host_receiver(), client, runtime.clock_, probe),
        server({.max_chunk_bytes = rpc::kMaxChunkBytes}, *runtime.engine_, runtime.link_->host_sender(),
               probe),
        service(*runtime.engine_, runtime.loop_, server, runtime.peers_, runtime.clock_, runtime.tracer()) {}
};

absl::StatusOr<std::unique_ptr<WorkerRuntime>> WorkerRuntime::Create(const Options& options,
                                                                     fleet::v1::Role role,
                                                                     const std::string& role_name) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const rpc::Security> security,
                         rpc::Security::Load(options.security));
  auto nccl_log = KvLink::OpenLog(options.link);  // before there are threads
  BATON_ASSIGN_OR_RETURN(auto starting, rpc::StartingServer::Start(ListeningOf(options, security)));
  // Before the model is loaded, which may take minutes.
  DiskCache::Files disk_files;
  if (DiskCache::Wanted(options.disk)) {
    BATON_ASSIGN_OR_RETURN(disk_files, DiskCache::OpenFiles(options.disk));
  }
  engine::EngineOptions loading = options.engine;
  if (!loading.weights_progress) {
    loading.weights_progress = [tenths = int64_t{0},
                                name = Name(loading.weights == model::WeightPrecision::kStored
                                                ? loading.draft_weights.value_or(loading.weights)
                                                : loading.weights)](int64_t done, int64_t all) mutable {
      const int64_t now = 10 * done / std::max<int64_t>(1, all);
      if (now > std::exchange(tenths, now))
        spdlog::info("{}% of the weights are converted to {}", 10 * now, name);
    };
  }
  std::unique_ptr<device::CoreShare> cores = JoinCores(options.share_cores);
  loading.cores = cores.get();
  BATON_ASSIGN_OR_RETURN(auto engine, engine::Engine::Load(loading));
  if (!options.chunk_reuse.empty()) BATON_RETURN_IF_ERROR(CheckChunkReuse(options.chunk_reuse, *engine));
  if (!engine->contradiction().empty()) {
    spdlog::warn("{}: {}", options.engine.model_folder, engine->contradiction());
  }
  for (const std::string& option : engine->config().unused) {
    spdlog::warn(
        "{}: config.json: {} is not used, as in transformers: another program may compute other numbers",
        options.engine.model_folder, option);
  }
  engine->pool().SetLeaseShare(options.cache_lease_share);
  const Incarnation incarnation(RandomU64());
  const std::string worker_id = options.worker_id.empty()
                                    ? fmt::format("{}-{:08x}", role_name, incarnation.value() >> 32)
                                    : options.worker_id;
  const forecast::StepCost cost =
      engine::MeasureStepCost(*engine, {.chunk_tokens = options.chunk_tokens}, MonotonicClock());
  BATON_ASSIGN_OR_RETURN(KvLink::Libraries libraries, KvLink::Open(options.link, *engine));
  libraries.nccl_log = std::move(nccl_log);
  fleet::v1::WorkerInfo info =
      Describe(role, worker_id, incarnation, libraries.pairing, options, *engine, cost);
  auto runtime = std::unique_ptr<WorkerRuntime>(new WorkerRuntime(
      options, std::move(security), std::move(cores), std::move(engine), cost, std::move(info)));
  runtime->starting_ = std::move(starting);
  BATON_ASSIGN_OR_RETURN(runtime->tracing_,
                         telemetry::Tracing::Start({.otlp = options.otlp}, fmt::format("baton-{}", role_name),
                                                   worker_id, runtime->metrics_));
  BATON_ASSIGN_OR_RETURN(runtime->link_,
                         KvLink::Create(options.link, std::move(libraries), *runtime->engine_, runtime->loop_,
                                        runtime->clock_, incarnation, runtime->metrics_));
  if (options.peer_fetch != "never") runtime->fetch_parts_ = std::make_unique<PeerFetchParts>(*runtime);
  if (DiskCache::Wanted(options.disk)) {
    DiskOptions disk = options.disk;
    disk.always = disk.always || options.peer_fetch == "always";
    BATON_ASSIGN_OR_RETURN(
        runtime->disk_, DiskCache::Create(disk, std::move(disk_files), *runtime->engine_, runtime->loop_,
                                          runtime->link_->host_receiver(), incarnation, cost, runtime->clock_,
                                          runtime->metrics_));
    if (runtime->disk_->store() != nullptr) {
      runtime->hub_.SetOnDisk(
          [store = runtime->disk_->store()](const kv::BlockHash& hash) { return store->contains(hash); });
    }
  }
  return runtime;
}

WorkerRuntime::WorkerRuntime(const Options& options, std::shared_ptr<const rpc::Security> security,
                             std::unique_ptr<device::CoreShare> cores, std::unique_ptr<engine::Engine> engine,
                             const forecast::StepCost& step_cost, fleet::v1::WorkerInfo info)
    : options_(options),
      security_(std::move(security)),
      cores_(std::move(cores)),
      engine_(std::move(engine)),
      step_cost_(step_cost),
      peers_(
          security_,
          [&denied = metrics_.Counter("baton_worker_denied_total",
                                      "Calls refused because they lacked the fleet's certificate or key")] {
            denied.Increment();
          }),
      hub_(std::move(info), [this] { loop_.PostAlways([] {}); }),
      loop_(kMailboxCapacity) {
  if (engine_->expert_store() != nullptr) experts_.emplace(metrics_, *engine_->expert_store());
}

WorkerRuntime::~WorkerRuntime() = default;

fetch::PeerFetch WorkerRuntime::peer_fetch() const {
  fetch::PeerFetch fetch;
  if (fetch_parts_ != nullptr) fetch = {.fetcher = &fetch_parts_->fetcher, .server = &fetch_parts_->server};
  if (disk_ != nullptr) {
    fetch.disk = disk_->disk();
    fetch.shared = disk_->shared();
  }
  return fetch;
}

void WorkerRuntime::SetTargets(const forecast::LatencyTargets& targets, const std::string& router_id) {
  if (targets == targets_) return;
  targets_ = targets;
  for (Stepper* stepper : steppers_) stepper->SetTargets(targets);
  spdlog::info("router {} tells its targets: TTFT {} s, TPOT {} s, tail share {}", router_id, targets.ttft,
               targets.tpot, targets.tail_share);
}

absl::Status WorkerRuntime::Serve(std::vector<Stepper*> steppers, bool ready) {
  BATON_CHECK(!steppers.empty() && (steppers.size() == 1 || !engine_->overlaps()));
  steppers_ = std::move(steppers);
  std::vector<fleet::v1::Role> roles;
  std::vector<grpc::Service*> services = {&worker_service_};
  for (Stepper* stepper : steppers_) {
    roles.push_back(stepper->role());
    services.push_back(&stepper->service());
  }
  hub_.SetRoles(std::move(roles));
  hub_.SetReady(ready);
  if (!options_.metrics_listen.empty()) {
    BATON_ASSIGN_OR_RETURN(metrics_server_, telemetry::MetricsServer::Start(options_.metrics_listen, metrics_,
                                                                            options_.security.cert));
    metrics_address_ = metrics_server_->address();
  }
  if (fetch_parts_ != nullptr) services.push_back(&fetch_parts_->service);
  BATON_ASSIGN_OR_RETURN(server_, rpc::Server::Start(ListeningOf(options_, security_), services,
                                                     std::exchange(starting_, nullptr)->HandOver()));
  if (!ready) server_->SetServing(false);
  loop_.Start([this] { return Step(); },
              [this] {
                if (cores_ != nullptr) cores_->Rest();
                if (held_) return kHeldRest;
                // Leases end, connections close and tiers write on a worker without work too, and watchers
                // and metrics are to hear of it.
                return std::min(hub_.rest(), kIdleRest);
              });
  spdlog::info(
      "{} serves {} on {}, metrics on {}, {} KV blocks; measured {:.3g} ms a decode step and {:.3g} ms "
      "a prompt token",
      worker_id(), engine_->fingerprint().model, address(),
      metrics_address_.empty() ? "no address" : metrics_address_, engine_->store().blocks(),
      1e3 * (step_cost_.base + step_cost_.sequence), 1e3 * step_cost_.token);
  return absl::OkStatus();
}

void WorkerRuntime::SetReady() {
  absl::MutexLock lock(&serving_);
  if (!drained_) server_->SetServing(true);
  hub_.SetReady(true);
}

bool WorkerRuntime::StepRoles() {
  StepGate* const gate = options_.step_gate;
  held_ = gate != nullptr && !gate->MayStep();
  if (held_) return false;
  bool busy = false;
  for (Stepper* stepper : steppers_) busy |= stepper->Step();
  if (gate != nullptr) gate->Stepped(busy);
  return busy;
}

bool WorkerRuntime::Step() {
  engine_->pool().Advance(clock_.Now());
  bool busy = StepRoles();
  fleet::v1::Load load;
  for (Stepper* stepper : steppers_) {
    RoleReport own = stepper->Report();
    if (!own.peer_rates.empty()) hub_.SetPeerRates(std::move(own.peer_rates));
    load.set_running(load.running() + own.load.running());
    load.set_queued(load.queued() + own.load.queued());
    load.set_queued_tokens(load.queued_tokens() + own.load.queued_tokens());
    load.set_answers_in_time(load.answers_in_time() + own.load.answers_in_time());
  }
  if (fetch_parts_ != nullptr) busy |= fetch_parts_->server.Step();
  draining_.Set(hub_.draining() ? 1 : 0);  // by Worker/Drain too
  link_->Observe();
  if (const std::string fault = link_->fault(); fault != link_fault_) {
    if (!fault.empty()) spdlog::error("not live any more: {}", fault);
    server_->SetLive(fault.empty());
    link_fault_ = fault;
  }
  kv::BlockPool& pool = engine_->pool();
  const kv::BlockPool::Counts blocks = pool.counts();
  load.set_free_blocks(blocks.free);
  load.set_held_blocks(blocks.held);
  load.set_cached_blocks(blocks.cached);
  load.set_total_blocks(blocks.total);
  load.set_leased_blocks(blocks.leased);
  leases_.Observe(pool);
  if (experts_.has_value()) experts_->Observe();
  const size_t serves = fetch_parts_ == nullptr ? 0 : fetch_parts_->server.serving();
  const auto published = [&pool] { return pool.Published(); };
  if (disk_ != nullptr) busy |= disk_->Step(busy);
  // What is shared is not this worker's to tell of.
  if (disk_ == nullptr || disk_->store() == nullptr) {
    hub_.Publish(std::move(load), serves, pool.TakeChanges(), published, clock_.Now());
    return busy;
  }
  load.set_disk_blocks(disk_->store()->counts().blocks);
  const auto stored = [this] { return disk_->store()->Stored(); };
  const WatchHub::DiskNews news{
      .changes = disk_->store()->TakeChanges(), .stored = stored, .rate = disk_->TakeRateNews()};
  hub_.Publish(std::move(load), serves, pool.TakeChanges(), published, clock_.Now(), &news);
  return busy;
}

void WorkerRuntime::Drain(absl::Duration grace) {
  {
    absl::MutexLock lock(&serving_);
    drained_ = true;
    server_->SetServing(false);
  }
  hub_.SetDraining(true);
  draining_.Set(1);
  const auto idle = std::make_shared<absl::Notification>();
  hub_.WhenIdle([idle] { idle->Notify(); });
  loop_.PostAlways([] {});
  idle->WaitForNotificationWithTimeout(grace);
}

void WorkerRuntime::Stop(const absl::Status& status) {
  if (server_ == nullptr) return;
  Drain(absl::ZeroDuration());
  loop_.Run([&] {
    for (Stepper* stepper : steppers_) stepper->Abort(status);
    if (fetch_parts_ != nullptr) {
      fetch_parts_->server.Abort(absl::UnavailableError("this worker is leaving: compute the blocks"));
    }
    if (disk_ != nullptr) disk_->Flush(kDiskFlush);
  });
  hub_.Close();
  // What has ended here may still be on its way: KV and last tokens leave before the process does.
  const absl::Duration last = absl::Seconds(std::clamp(options_.process.drain_seconds, 1.0, 10.0));
  server_->Shutdown(last);
  link_->Flush(last);
  // The stopped loop drops the last events of calls that were released.
  loop_.Stop();
  link_->Close();
  server_.reset();
}

}  // namespace baton::worker
