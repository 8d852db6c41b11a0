#include "tests/fakes/direct_prefill_client.h"

#include <utility>
#include <vector>

#include "protocol/fleet/lease_wire.h"
#include "protocol/fleet/reusable_wire.h"

namespace baton::testing {

class DirectPrefillClient::Handle final : public decode_service::PrefillCall {
 public:
  Handle(std::shared_ptr<LiveCall> call, prefill_service::JobId id) : call_(std::move(call)), id_(id) {}
  ~Handle() override {
    call_->let_go = true;
    if (call_->worker != nullptr) call_->worker->scheduler->Cancel(id_);
  }
  void Next() override { call_->wants_next = true; }

 private:
  std::shared_ptr<LiveCall> call_;
  prefill_service::JobId id_;
};

void DirectPrefillClient::AddWorker(const std::string& address, engine::Engine& engine,
                                    prefill_service::SchedulerOptions options) {
  auto worker = std::make_unique<Worker>();
  worker->probe = std::make_unique<prefill_service::Probe>(worker->metrics, worker->link.name());
  worker->engine = &engine;
  worker->scheduler = std::make_unique<prefill_service::Scheduler>(options, engine, worker->link,
                                                                   worker->clock, *worker->probe);
  workers_[address] = std::move(worker);
}

std::unique_ptr<decode_service::PrefillCall> DirectPrefillClient::Call(const std::string& address,
                                                                       fleet::v1::PrefillRequest request,
                                                                       absl::Time deadline,
                                                                       const telemetry::TraceContext&,
                                                                       Callbacks callbacks) {
  ++calls_started_;
  const prefill_service::JobId id = next_id_++;
  auto call = std::make_shared<LiveCall>();
  call->callbacks = std::move(callbacks);
  calls_[id] = call;
  const auto found = workers_.find(address);
  if (found == workers_.end()) {
    call->finished = true;
    call->status = absl::UnavailableError("no worker at " + address);
    return std::make_unique<Handle>(call, id);
  }
  call->worker = found->second.get();
  prefill_service::Job job;
  for (int32_t token : request.token_ids()) job.tokens.emplace_back(token);
  job.request_id = request.request_id();
  job.root = call->worker->engine->RootFor(kv::TenantSalt(request.salt()));
  if (auto leases = protocol::LeasesFromProto(request.leases(), request.token_ids_size()); leases.ok()) {
    job.leases = *std::move(leases);
  }
  job.reusable = protocol::ReusableFromProto(request.reusable(), request.token_ids_size()).value();
  job.ticket = protocol::Ticket::FromProto(request.ticket());
  job.send = [call](fleet::v1::PrefillEvent event) { call->events.push_back(std::move(event)); };
  job.finish = [call](absl::Status status) {
    call->finished = true;
    call->status = std::move(status);
  };
  job.congested = [call] { return call->events.size() > 64; };
  if (absl::Status queued = call->worker->scheduler->Submit(id, std::move(job)); !queued.ok()) {
    call->finished = true;
    call->status = queued;
  }
  return std::make_unique<Handle>(call, id);
}

bool DirectPrefillClient::Pump() {
  bool any = false;
  for (auto& [address, worker] : workers_) any |= worker->scheduler->Step();
  const std::vector<std::pair<prefill_service::JobId, std::shared_ptr<LiveCall>>> calls(calls_.begin(),
                                                                                        calls_.end());
  for (const auto& [id, call] : calls) {
    if (call->let_go) {
      calls_.erase(id);
      continue;
    }
    if (!call->events.empty()) {
      if (!call->wants_next) continue;
      any = true;
      fleet::v1::PrefillEvent event = call->events.front();
      bool again = false;
      if (call->worker->fault) {
        if (absl::Status fault = call->worker->fault(call->delivered++, event, again); !fault.ok()) {
          call->worker->scheduler->Cancel(id);
          calls_.erase(id);
          call->callbacks.done(fault);
          continue;
        }
      }
      if (!again) call->events.pop_front();
      call->wants_next = false;
      call->callbacks.event(std::move(event));
    } else if (call->finished) {
      any = true;
      calls_.erase(id);
      call->callbacks.done(call->status);
    }
  }
  return any;
}

}  // namespace baton::testing
