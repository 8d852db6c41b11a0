#include "decode_service/server.h"

#include <filesystem>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "common/text/tokenizer.h"
#include "common/transfer/host_link.h"
#include "common/worker/watch_hub.h"
#include "common/worker/worker_service.h"
#include "decode_service/service.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace baton::decode_service {
namespace {

// Requests and events on their way to the engine thread.
constexpr size_t kMailboxCapacity = 4096;

}  // namespace

// In the order of construction: what comes later uses what comes before.
struct DecodeServer::Parts {
  std::unique_ptr<engine::Engine> engine;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  MonotonicClock clock;
  telemetry::Metrics metrics;
  transfer::HostLinkReceiver link;
  std::unique_ptr<Probe> probe;
  std::unique_ptr<worker::WatchHub> hub;
  engine::Loop loop{kMailboxCapacity};
  std::unique_ptr<GrpcPrefillClient> prefill;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<DecodeService> service;
  std::unique_ptr<worker::WorkerService> worker_service;
  std::unique_ptr<telemetry::MetricsServer> metrics_server;
  std::unique_ptr<rpc::Server> server;

  bool Step() {
    const bool busy = scheduler->Step();
    v1::Load load;
    const size_t running = scheduler->running();
    load.set_running(static_cast<uint32_t>(running));
    load.set_queued(static_cast<uint32_t>(scheduler->sequences() - running));
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

absl::StatusOr<std::unique_ptr<DecodeServer>> DecodeServer::Start(ServerOptions options) {
  auto parts = std::make_unique<Parts>();
  const worker::Options& worker = options.worker;
  BATON_ASSIGN_OR_RETURN(parts->engine, engine::Engine::Load(worker.engine));
  BATON_ASSIGN_OR_RETURN(parts->tokenizer, text::Tokenizer::Load(worker.engine.model_folder));
  const Incarnation incarnation(RandomU64());
  options.scheduler.incarnation = incarnation;
  options.scheduler.worker_id =
      worker.worker_id.empty() ? fmt::format("decode-{:08x}", incarnation.value() >> 32) : worker.worker_id;
  parts->probe = std::make_unique<Probe>(parts->metrics, parts->link.name());
  parts->hub = std::make_unique<worker::WatchHub>(
      worker::Describe(v1::ROLE_DECODE, options.scheduler.worker_id, incarnation, worker, *parts->engine));
  parts->prefill = std::make_unique<GrpcPrefillClient>(parts->loop);
  parts->scheduler = std::make_unique<Scheduler>(options.scheduler, *parts->engine, parts->link,
                                                 *parts->prefill, parts->clock, *parts->probe);
  parts->service = std::make_unique<DecodeService>(*parts->engine, parts->loop, *parts->scheduler,
                                                   *parts->hub, parts->tokenizer, *parts->probe);
  parts->worker_service = std::make_unique<worker::WorkerService>(*parts->hub, parts->loop);
  BATON_ASSIGN_OR_RETURN(parts->metrics_server,
                         telemetry::MetricsServer::Start(worker.metrics_listen, parts->metrics));
  BATON_ASSIGN_OR_RETURN(
      parts->server,
      rpc::Server::Start({.listen = worker.listen}, {parts->service.get(), parts->worker_service.get()}));
  parts->loop.Start([parts = parts.get()] { return parts->Step(); });
  spdlog::info("decode worker {} serves {} on {}, metrics on {}, {} KV blocks", options.scheduler.worker_id,
               parts->engine->fingerprint().model, parts->server->address(), parts->metrics_server->address(),
               parts->engine->pool().counts().total);
  return std::unique_ptr<DecodeServer>(new DecodeServer(std::move(parts)));
}

DecodeServer::DecodeServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

DecodeServer::~DecodeServer() {
  Drain(absl::ZeroDuration());
  parts_->loop.Run(
      [this] { parts_->scheduler->Abort(absl::UnavailableError("the decode worker is leaving")); });
  parts_->hub->Close();
  parts_->server->Shutdown(absl::Seconds(1));
  // Calls to prefill workers have been let go; their last words are dropped by the stopped loop.
  parts_->loop.Stop();
}

void DecodeServer::Drain(absl::Duration grace) {
  parts_->server->SetServing(false);
  parts_->hub->SetDraining(true);
  auto idle = std::make_shared<absl::Notification>();
  parts_->hub->WhenIdle([idle] { idle->Notify(); });
  idle->WaitForNotificationWithTimeout(grace);
}

const std::string& DecodeServer::address() const { return parts_->server->address(); }
const std::string& DecodeServer::metrics_address() const { return parts_->metrics_server->address(); }

kv::BlockPool::Counts DecodeServer::Blocks() {
  kv::BlockPool::Counts counts;
  WithEngine([&](engine::Engine& engine) { counts = engine.pool().counts(); });
  return counts;
}

void DecodeServer::WithEngine(absl::FunctionRef<void(engine::Engine&)> use) {
  parts_->loop.Run([&] { use(*parts_->engine); });
}

}  // namespace baton::decode_service
