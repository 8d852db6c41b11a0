#include "tests/fakes/direct_fetch_client.h"

#include <utility>
#include <vector>

#include "transfer/fetch/blocks_service.h"

namespace baton::testing {

class DirectFetchClient::Handle final : public rpc::EventCall {
 public:
  Handle(std::shared_ptr<LiveCall> call, fetch::FetchId id) : call_(std::move(call)), id_(id) {}
  ~Handle() override {
    call_->let_go = true;
    if (call_->server != nullptr) call_->server->Cancel(id_);
  }
  void Next() override { call_->wants_next = true; }

 private:
  std::shared_ptr<LiveCall> call_;
  fetch::FetchId id_;
};

std::unique_ptr<rpc::EventCall> DirectFetchClient::Call(const std::string& address,
                                                        fleet::v1::FetchRequest request,
                                                        absl::Duration patience,
                                                        const telemetry::TraceContext& trace,
                                                        Callbacks callbacks) {
  ++calls_started_;
  last_patience_ = patience;
  last_trace_ = trace;
  const fetch::FetchId id = next_id_++;
  auto call = std::make_shared<LiveCall>();
  call->callbacks = std::move(callbacks);
  calls_[id] = call;
  const auto end = [&](absl::Status status) {
    call->finished = true;
    call->status = std::move(status);
    return std::make_unique<Handle>(call, id);
  };
  const auto found = peers_.find(address);
  if (found == peers_.end()) return end(absl::UnavailableError("no worker at " + address));
  auto ask = fetch::ParseRequest(request, *found->second.engine);
  if (!ask.ok()) return end(ask.status());
  call->server = found->second.server;
  ask->send = [call](fleet::v1::FetchEvent event) { call->events.push_back(std::move(event)); };
  ask->finish = [call](absl::Status status) {
    call->finished = true;
    call->status = std::move(status);
  };
  ask->congested = [call] { return call->events.size() > 4; };
  if (absl::Status served = call->server->Submit(id, *std::move(ask)); !served.ok()) return end(served);
  return std::make_unique<Handle>(call, id);
}

void DirectFetchClient::PassDeadlines() {
  for (const auto& [id, call] : std::map(calls_)) {
    if (call->let_go) continue;
    call->events.clear();
    if (call->server != nullptr) call->server->Cancel(id);
    call->finished = true;
    call->status = absl::DeadlineExceededError("the patience is over");
    call->wants_next = true;
  }
}

bool DirectFetchClient::Pump() {
  if (hangs_) {
    std::erase_if(calls_, [](const auto& entry) { return entry.second->let_go; });
    return false;
  }
  bool any = false;
  for (const auto& [address, peer] : peers_) any |= peer.server->Step();
  for (const auto& [id, call] : std::map(calls_)) {
    if (call->let_go) {
      calls_.erase(id);
      continue;
    }
    if (!call->events.empty() && call->wants_next) {
      any = true;
      fleet::v1::FetchEvent event = std::move(call->events.front());
      call->events.pop_front();
      bool again = false;
      if (fault_) {
        if (absl::Status broken = fault_(call->delivered, event, again); !broken.ok()) {
          call->events.clear();
          if (call->server != nullptr) call->server->Cancel(id);
          call->finished = true;
          call->status = std::move(broken);
          continue;
        }
      }
      ++call->delivered;
      if (again) call->events.push_front(event);
      call->wants_next = false;
      if (const auto take = call->callbacks.event) take(std::move(event));
    } else if (call->events.empty() && call->finished) {
      any = true;
      calls_.erase(id);
      if (!call->let_go) call->callbacks.done(call->status);
    }
  }
  return any;
}

}  // namespace baton::testing
