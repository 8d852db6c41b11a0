#include "prefill_service/server.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/worker/host.h"
#include "prefill_service/service.h"

namespace baton::prefill_service {

// In the order of construction: what comes later uses what comes before.
struct PrefillServer::Parts {
  std::unique_ptr<worker::Host> host;
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
  BATON_ASSIGN_OR_RETURN(parts->host, worker::Host::Create(options.worker, v1::ROLE_PREFILL, "prefill"));
  worker::Host& host = *parts->host;
  transfer::LinkSender& link = host.link().sender();
  options.scheduler.step_cost = host.step_cost();
  options.scheduler.max_chunk_bytes = rpc::kMaxChunkBytes;
  parts->probe = std::make_unique<Probe>(host.metrics(), link.name());
  parts->scheduler = std::make_unique<Scheduler>(options.scheduler, host.engine(), link, host.clock(),
                                                 *parts->probe, host.exchange());
  parts->service = std::make_unique<PrefillService>(host.engine(), link, host.loop(), *parts->scheduler,
                                                    host.hub(), *parts->probe, host.peers());
  BATON_RETURN_IF_ERROR(host.Serve(*parts->service, [parts = parts.get()] { return parts->Step(); }));
  return std::unique_ptr<PrefillServer>(new PrefillServer(std::move(parts)));
}

PrefillServer::PrefillServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

PrefillServer::~PrefillServer() {
  parts_->host->Stop(
      [this] { parts_->scheduler->Abort(absl::UnavailableError("the prefill worker is leaving")); });
}

void PrefillServer::Drain(absl::Duration grace) { parts_->host->Drain(grace); }
const std::string& PrefillServer::address() const { return parts_->host->address(); }
const std::string& PrefillServer::metrics_address() const { return parts_->host->metrics_address(); }

}  // namespace baton::prefill_service
