#include "prefill_service/server.h"

#include <filesystem>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "common/transfer/host_link.h"
#include "common/worker/watch_hub.h"
#include "common/worker/worker_service.h"
#include "fmt/format.h"
#include "prefill_service/service.h"
#include "spdlog/spdlog.h"

namespace baton::prefill_service {
namespace {

// Requests and events on their way to the engine thread.
constexpr size_t kMailboxCapacity = 4096;

}  // namespace

// In the order of construction: what comes later uses what comes before.
struct PrefillServer::Parts {
  std::unique_ptr<engine::Engine> engine;
  MonotonicClock clock;
  telemetry::Metrics metrics;
  transfer::HostLinkSender link;
  std::unique_ptr<Probe> probe;
  std::unique_ptr<worker::WatchHub> hub;
  engine::Loop loop{kMailboxCapacity};
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<PrefillService> service;
  std::unique_ptr<worker::WorkerService> worker_service;
  std::unique_ptr<telemetry::MetricsServer> metrics_server;
  std::unique_ptr<rpc::Server> server;

  bool Step() {
    const bool busy = scheduler->Step();
    v1::Load load;
    load.set_running(static_cast<uint32_t>(scheduler->computing()));
    load.set_queued(static_cast<uint32_t>(scheduler->queued()));
    load.set_queued_tokens(scheduler->pending_tokens());
    const kv::BlockPool::Counts blocks = engine->pool().counts();
    load.set_free_blocks(blocks.free);
    load.set_held_blocks(blocks.held);
    load.set_cached_blocks(blocks.cached);
    load.set_total_blocks(blocks.total);
    hub->Publish(load, engine->pool().TakeChanges(), [this] { return engine->pool().Published(); });
    return busy;
  }
};

absl::StatusOr<std::unique_ptr<PrefillServer>> PrefillServer::Start(ServerOptions options) {
  auto parts = std::make_unique<Parts>();
  const worker::Options& worker = options.worker;
  BATON_ASSIGN_OR_RETURN(parts->engine, engine::Engine::Load(worker.engine));
  const Incarnation incarnation(RandomU64());
  const std::string worker_id =
      worker.worker_id.empty() ? fmt::format("prefill-{:08x}", incarnation.value() >> 32) : worker.worker_id;
  parts->probe = std::make_unique<Probe>(parts->metrics, parts->link.name());
  parts->hub = std::make_unique<worker::WatchHub>(
      worker::Describe(v1::ROLE_PREFILL, worker_id, incarnation, worker, *parts->engine));
  options.scheduler.max_chunk_bytes = rpc::kMaxChunkBytes;
  parts->scheduler = std::make_unique<Scheduler>(options.scheduler, *parts->engine, parts->link, parts->clock,
                                                 *parts->probe);
  parts->service = std::make_unique<PrefillService>(*parts->engine, parts->loop, *parts->scheduler,
                                                    *parts->hub, *parts->probe);
  parts->worker_service = std::make_unique<worker::WorkerService>(*parts->hub, parts->loop);
  BATON_ASSIGN_OR_RETURN(parts->metrics_server,
                         telemetry::MetricsServer::Start(worker.metrics_listen, parts->metrics));
  BATON_ASSIGN_OR_RETURN(
      parts->server,
      rpc::Server::Start({.listen = worker.listen}, {parts->service.get(), parts->worker_service.get()}));
  parts->loop.Start([parts = parts.get()] { return parts->Step(); });
  spdlog::info("prefill worker {} serves {} on {}, metrics on {}, {} KV blocks", worker_id,
               parts->engine->fingerprint().model, parts->server->address(), parts->metrics_server->address(),
               parts->engine->pool().counts().total);
  return std::unique_ptr<PrefillServer>(new PrefillServer(std::move(parts)));
}

PrefillServer::PrefillServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

PrefillServer::~PrefillServer() {
  Drain(absl::ZeroDuration());
  parts_->loop.Run(
      [this] { parts_->scheduler->Abort(absl::UnavailableError("the prefill worker is leaving")); });
  parts_->hub->Close();
  parts_->server->Shutdown(absl::Seconds(1));
  parts_->loop.Stop();
}

void PrefillServer::Drain(absl::Duration grace) {
  parts_->server->SetServing(false);
  parts_->hub->SetDraining(true);
  auto idle = std::make_shared<absl::Notification>();
  parts_->hub->WhenIdle([idle] { idle->Notify(); });
  idle->WaitForNotificationWithTimeout(grace);
}

const std::string& PrefillServer::address() const { return parts_->server->address(); }
const std::string& PrefillServer::metrics_address() const { return parts_->metrics_server->address(); }

kv::BlockPool::Counts PrefillServer::Blocks() {
  kv::BlockPool::Counts counts;
  WithEngine([&](engine::Engine& engine) { counts = engine.pool().counts(); });
  return counts;
}

void PrefillServer::WithEngine(absl::FunctionRef<void(engine::Engine&)> use) {
  parts_->loop.Run([&] { use(*parts_->engine); });
}

}  // namespace baton::prefill_service
