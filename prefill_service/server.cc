#include "prefill_service/server.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/worker/worker_runtime.h"
#include "prefill_service/service.h"

namespace baton::prefill_service {

// In the order of construction: what comes later uses what comes before.
struct PrefillServer::Parts {
  std::unique_ptr<worker::WorkerRuntime> runtime;
  std::unique_ptr<Probe> probe;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<PrefillService> service;

  worker::StepReport Step() {
    worker::StepReport report;
    report.busy = scheduler->Step();
    report.load.set_running(static_cast<uint32_t>(scheduler->computing()));
    report.load.set_queued(static_cast<uint32_t>(scheduler->queued()));
    report.load.set_queued_tokens(scheduler->pending_tokens());
    return report;
  }
};

absl::StatusOr<std::unique_ptr<PrefillServer>> PrefillServer::Start(ServerOptions options) {
  auto parts = std::make_unique<Parts>();
  options.worker.link.step_tokens = options.scheduler.token_budget;
  options.worker.chunk_tokens = std::min(options.scheduler.chunk_tokens, options.scheduler.token_budget);
  BATON_ASSIGN_OR_RETURN(parts->runtime,
                         worker::WorkerRuntime::Create(options.worker, v1::ROLE_PREFILL, "prefill"));
  worker::WorkerRuntime& runtime = *parts->runtime;
  transfer::LinkSender& link = runtime.link().sender();
  options.scheduler.step_cost = runtime.step_cost();
  options.scheduler.max_chunk_bytes = rpc::kMaxChunkBytes;
  parts->probe = std::make_unique<Probe>(runtime.metrics(), link.name());
  parts->scheduler = std::make_unique<Scheduler>(options.scheduler, runtime.engine(), link, runtime.clock(),
                                                 *parts->probe, runtime.peer_fetch());
  parts->service = std::make_unique<PrefillService>(runtime.engine(), link, runtime.loop(), *parts->scheduler,
                                                    runtime.hub(), *parts->probe, runtime.peers());
  BATON_RETURN_IF_ERROR(runtime.Serve(*parts->service, [parts = parts.get()] { return parts->Step(); }));
  return std::unique_ptr<PrefillServer>(new PrefillServer(std::move(parts)));
}

PrefillServer::PrefillServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

PrefillServer::~PrefillServer() {
  parts_->runtime->Stop(
      [this] { parts_->scheduler->Abort(absl::UnavailableError("the prefill worker is leaving")); });
}

void PrefillServer::Drain(absl::Duration grace) { parts_->runtime->Drain(grace); }
const std::string& PrefillServer::address() const { return parts_->runtime->address(); }
const std::string& PrefillServer::metrics_address() const { return parts_->runtime->metrics_address(); }

}  // namespace baton::prefill_service
