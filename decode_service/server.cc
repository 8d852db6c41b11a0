#include "decode_service/server.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/text/tokenizer.h"
#include "common/worker/worker_runtime.h"
#include "decode_service/service.h"

namespace baton::decode_service {

// In the order of construction: what comes later uses what comes before.
struct DecodeServer::Parts {
  std::unique_ptr<worker::WorkerRuntime> runtime;
  std::unique_ptr<Probe> probe;
  std::unique_ptr<GrpcPrefillClient> prefill;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<DecodeService> service;
  std::unique_ptr<LinkCheck> link_check;

  worker::StepReport Step() {
    worker::StepReport report;
    report.busy = scheduler->Step();
    const size_t running = scheduler->running();
    report.load.set_running(static_cast<uint32_t>(running));
    report.load.set_queued(static_cast<uint32_t>(scheduler->sequences() - running));
    report.load.set_queued_tokens(scheduler->pending_tokens());
    return report;
  }
};

absl::StatusOr<std::unique_ptr<DecodeServer>> DecodeServer::Start(ServerOptions options) {
  auto parts = std::make_unique<Parts>();
  options.worker.chunk_tokens =
      std::min(options.scheduler.step.chunk_tokens, options.scheduler.step.token_budget);
  BATON_ASSIGN_OR_RETURN(parts->runtime,
                         worker::WorkerRuntime::Create(options.worker, v1::ROLE_DECODE, "decode"));
  BATON_ASSIGN_OR_RETURN(auto tokenizer, text::Tokenizer::Load(options.worker.engine.model_folder));
  worker::WorkerRuntime& runtime = *parts->runtime;
  transfer::LinkReceiver& link = runtime.link().receiver();
  options.scheduler.worker_id = runtime.worker_id();
  options.scheduler.incarnation = runtime.incarnation();
  options.scheduler.step_cost = runtime.step_cost();
  parts->probe = std::make_unique<Probe>(runtime.metrics(), link.name());
  parts->prefill = std::make_unique<GrpcPrefillClient>(runtime.loop(), runtime.security());
  parts->scheduler = std::make_unique<Scheduler>(options.scheduler, runtime.engine(), link, *parts->prefill,
                                                 runtime.clock(), *parts->probe, runtime.peer_fetch());
  parts->service =
      std::make_unique<DecodeService>(runtime.engine(), runtime.loop(), *parts->scheduler, runtime.hub(),
                                      std::move(tokenizer), *parts->probe, runtime.peers());
  const bool tested = !options.link_check.peers.empty();
  BATON_RETURN_IF_ERROR(runtime.Serve(
      *parts->service, [parts = parts.get()] { return parts->Step(); }, !tested));
  if (tested) {
    runtime.link().probe().Floor(options.link_check.floor_gbps * 1e9);
    parts->link_check = std::make_unique<LinkCheck>(std::move(options.link_check), runtime,
                                                    [&runtime] { runtime.SetReady(); });
  }
  return std::unique_ptr<DecodeServer>(new DecodeServer(std::move(parts)));
}

DecodeServer::DecodeServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

DecodeServer::~DecodeServer() {
  parts_->link_check.reset();
  parts_->runtime->Stop(
      [this] { parts_->scheduler->Abort(absl::UnavailableError("the decode worker is leaving")); });
}

void DecodeServer::Drain(absl::Duration grace) { parts_->runtime->Drain(grace); }
const std::string& DecodeServer::address() const { return parts_->runtime->address(); }
const std::string& DecodeServer::metrics_address() const { return parts_->runtime->metrics_address(); }

}  // namespace baton::decode_service
