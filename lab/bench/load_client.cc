#include "lab/bench/load_client.h"

#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <unordered_set>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace baton::lab::bench {

struct LoadClient::State {
  explicit State(const Clock& clock_in) : clock(clock_in) {}

  const Clock& clock;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
  absl::Mutex mutex;
  size_t next_stub ABSL_GUARDED_BY(mutex) = 0;
  std::unordered_set<Call*> calls ABSL_GUARDED_BY(mutex);
};

// Owns itself until OnDone, gRPC's last word.
class LoadClient::Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(std::shared_ptr<State> state, v1::GenerateRequest request, absl::Duration timeout,
       std::function<void(Outcome)> done)
      : state_(std::move(state)), request_(std::move(request)), done_(std::move(done)) {
    if (timeout != absl::InfiniteDuration()) {
      context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    }
  }

  void Start(v1::Inference::Stub& stub) {
    outcome_.sent = state_->clock.Now();
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    const absl::Time now = state_->clock.Now();
    if (event_.has_delta()) {
      const v1::Delta& delta = event_.delta();
      if (delta.tokens() > 0) {
        if (outcome_.tokens == 0) {
          outcome_.first_token = now;
        } else {
          outcome_.gaps.push_back(static_cast<float>(absl::ToDoubleSeconds(now - outcome_.last_token)));
        }
        outcome_.last_token = now;
        outcome_.tokens += delta.tokens();
      }
      outcome_.token_ids.insert(outcome_.token_ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    } else if (event_.has_finished()) {
      outcome_.finished = std::move(*event_.mutable_finished());
    }
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    outcome_.end = state_->clock.Now();
    outcome_.status = rpc::FromGrpc(status);
    outcome_.retry_delay = rpc::RetryDelay(outcome_.status);
    done_(std::move(outcome_));
    // Kept past the erase: it may hold the last reference, and this object goes first.
    const std::shared_ptr<State> state = state_;
    absl::MutexLock lock(&state->mutex);
    state->calls.erase(this);
    delete this;
  }

  const std::shared_ptr<State> state_;
  const v1::GenerateRequest request_;
  const std::function<void(Outcome)> done_;
  grpc::ClientContext context_;
  v1::GenerateResponse event_;
  Outcome outcome_;
};

LoadClient::LoadClient(const std::string& address, int connections, const Clock& clock,
                       const rpc::Security* security)
    : state_(std::make_shared<State>(clock)) {
  for (int i = 0; i < connections; ++i) {
    state_->stubs.push_back(
        v1::Inference::NewStub(rpc::MakeChannel(address, rpc::kPublicKeepalive, security)));
  }
}

LoadClient::~LoadClient() {
  CancelAll();
  // Channels end here and not with the last holder of the state: that may be one of gRPC's own threads, which
  // would wait for itself.
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
  absl::MutexLock lock(&state_->mutex);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) { return state_->calls.empty(); };
  state_->mutex.Await(absl::Condition(&none));
  stubs.swap(state_->stubs);
}

void LoadClient::Start(v1::GenerateRequest request, absl::Duration timeout,
                       std::function<void(Outcome)> done) {
  auto* call = new Call(state_, std::move(request), timeout, std::move(done));
  v1::Inference::Stub* stub;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->calls.insert(call);
    stub = state_->stubs[state_->next_stub++ % state_->stubs.size()].get();
  }
  call->Start(*stub);
}

void LoadClient::CancelAll() {
  absl::MutexLock lock(&state_->mutex);
  for (Call* call : state_->calls) call->Cancel();
}

}  // namespace baton::lab::bench
