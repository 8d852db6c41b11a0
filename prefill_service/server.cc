#include "prefill_service/server.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "prefill_service/service.h"
#include "worker/worker_runtime.h"

namespace baton::prefill_service {

namespace {

// What a worker runs to prefill. In the order of construction: what comes later uses what comes before.
class PrefillRole final : public worker::Stepper {
 public:
  PrefillRole(const SchedulerOptions& options, worker::WorkerRuntime& runtime)
      : probe_(runtime.metrics(), runtime.link().sender().name()),
        scheduler_(options, runtime.engine(), runtime.link().sender(), runtime.clock(), probe_,
                   runtime.peer_fetch()),
        link_tests_(runtime.engine(), runtime.link().sender(), options.max_chunk_bytes),
        service_(runtime.engine(), runtime.link().sender(), runtime.loop(), scheduler_, link_tests_,
                 runtime.hub(), probe_, runtime.peers(), runtime.clock(), runtime.tracer()) {}

  fleet::v1::Role role() const override { return fleet::v1::ROLE_PREFILL; }
  grpc::Service& service() override { return service_; }
  bool Step() override {
    const bool busy = scheduler_.Step();
    return link_tests_.Step() || busy;
  }
  worker::RoleReport Report() override {
    worker::RoleReport report;
    report.load.set_running(static_cast<uint32_t>(scheduler_.computing()));
    report.load.set_queued(static_cast<uint32_t>(scheduler_.queued()));
    report.load.set_queued_tokens(scheduler_.pending_tokens());
    return report;
  }
  void SetTargets(const forecast::LatencyTargets& targets) override { scheduler_.SetTargets(targets); }
  void Abort(const absl::Status& status) override {
    scheduler_.Abort(status);
    link_tests_.Abort(status);
  }

 private:
  Probe probe_;
  Scheduler scheduler_;
  LinkTests link_tests_;
  PrefillService service_;
};

}  // namespace

struct PrefillServer::Parts {
  std::unique_ptr<worker::WorkerRuntime> runtime;
  std::unique_ptr<PrefillRole> role;
};

absl::StatusOr<std::unique_ptr<PrefillServer>> PrefillServer::Start(ServerOptions options) {
  auto parts = std::make_unique<Parts>();
  options.worker.link.step_tokens = options.scheduler.token_budget;
  options.worker.chunk_tokens = std::min(options.scheduler.chunk_tokens, options.scheduler.token_budget);
  BATON_ASSIGN_OR_RETURN(parts->runtime,
                         worker::WorkerRuntime::Create(options.worker, fleet::v1::ROLE_PREFILL, "prefill"));
  options.scheduler.chunk_reuse = !options.worker.chunk_reuse.empty();
  options.scheduler.step_cost = parts->runtime->step_cost();
  options.scheduler.max_chunk_bytes = rpc::kMaxChunkBytes;
  parts->role = std::make_unique<PrefillRole>(options.scheduler, *parts->runtime);
  BATON_RETURN_IF_ERROR(parts->runtime->Serve({parts->role.get()}));
  return std::unique_ptr<PrefillServer>(new PrefillServer(std::move(parts)));
}

PrefillServer::PrefillServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

PrefillServer::~PrefillServer() {
  parts_->runtime->Stop(absl::UnavailableError("the prefill worker is leaving"));
}

void PrefillServer::Drain(absl::Duration grace) { parts_->runtime->Drain(grace); }
const std::string& PrefillServer::address() const { return parts_->runtime->address(); }
const std::string& PrefillServer::metrics_address() const { return parts_->runtime->metrics_address(); }

}  // namespace baton::prefill_service
