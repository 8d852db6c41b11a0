#include "tests/fakes/fake_worker.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/decode.grpc.pb.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "tests/patience.h"

namespace baton::fakes {
namespace {

Script DefaultScript(const fleet::v1::DecodeRequest&) {
  return {Step::Accept(), Step::Token(5, "a"), Step::Token(6, "b"), Step::Finish()};
}

class ScriptedCall;

// State that the services and their calls share.
struct State {
  mutable absl::Mutex mutex;
  FakeWorker::Options options ABSL_GUARDED_BY(mutex);
  FakeWorker::Counts counts ABSL_GUARDED_BY(mutex);
  std::function<Script(const fleet::v1::DecodeRequest&)> script ABSL_GUARDED_BY(mutex) = DefaultScript;
  std::vector<fleet::v1::DecodeRequest> requests ABSL_GUARDED_BY(mutex);
  std::vector<ScriptedCall*> holding ABSL_GUARDED_BY(mutex);
  fleet::v1::Load load ABSL_GUARDED_BY(mutex);
  bool draining ABSL_GUARDED_BY(mutex) = false;
  bool silent ABSL_GUARDED_BY(mutex) = false;
  uint64_t skip ABSL_GUARDED_BY(mutex) = 0;
  struct Watch {
    std::shared_ptr<rpc::ServerStream<fleet::v1::WatchEvent>> stream;
    uint64_t sequence = 1;
  };
  std::vector<Watch> watches ABSL_GUARDED_BY(mutex);
};

// Runs a script: one write outstanding at a time, each counted when the transport took it.
class ScriptedCall final : public grpc::ServerWriteReactor<fleet::v1::DecodeEvent> {
 public:
  ScriptedCall(State* state, const fleet::v1::DecodeRequest& request) : state_(state) {
    std::function<Script(const fleet::v1::DecodeRequest&)> script;
    {
      absl::MutexLock lock(&state_->mutex);
      if (state_->options.remember) state_->requests.push_back(request);
      ++state_->counts.calls;
      ++state_->counts.running;
      script = state_->script;
    }
    script_ = script(request);
    absl::MutexLock lock(&state_->mutex);
    Advance();
  }

  void Resume() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) { Advance(); }

 private:
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    if (ended_) return;
    if (next_ == script_.size()) return End(absl::OkStatus());
    const Step& step = script_[next_++];
    switch (step.kind) {
      case Step::Kind::kSend:
        writing_ = true;
        StartWrite(&step.event);
        return;
      case Step::Kind::kHold:
        state_->holding.push_back(this);
        ++state_->counts.held;
        return;
      case Step::Kind::kUntil:
        sleeping_ = true;
        alarm_.Set(absl::ToChronoTime(step.until), [this](bool) { Wake(); });
        return;
      case Step::Kind::kEnd:
        return End(step.status);
    }
  }

  void Wake() {
    absl::MutexLock lock(&state_->mutex);
    sleeping_ = false;
    if (cancelled_) {
      End(absl::CancelledError("cancelled"));
    } else {
      Advance();
    }
  }

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    if (ended_) return;
    ended_ = true;
    --state_->counts.running;
    state_->counts.held -= static_cast<int>(std::erase(state_->holding, this));
    Finish(rpc::ToGrpc(status));
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&state_->mutex);
    writing_ = false;
    if (ok) ++state_->counts.events_out;
    if (cancelled_) {
      End(absl::CancelledError("cancelled"));
    } else {
      Advance();
    }
  }

  void OnCancel() override {
    absl::MutexLock lock(&state_->mutex);
    if (ended_) return;
    cancelled_ = true;
    ++state_->counts.cancelled;
    if (sleeping_) alarm_.Cancel();
    if (!writing_ && !sleeping_) End(absl::CancelledError("cancelled"));
  }

  void OnDone() override {
    // The callbacks' last write may be another thread's.
    { const absl::MutexLock lock(&state_->mutex); }
    delete this;
  }

  State* const state_;
  Script script_;
  size_t next_ = 0;
  grpc::Alarm alarm_;
  bool writing_ = false;
  bool sleeping_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
};

class DecodeService final : public fleet::v1::Decode::CallbackService {
 public:
  explicit DecodeService(State* state) : state_(state) {}
  grpc::ServerWriteReactor<fleet::v1::DecodeEvent>* Generate(
      grpc::CallbackServerContext*, const fleet::v1::DecodeRequest* request) override {
    return new ScriptedCall(state_, *request);
  }

 private:
  State* const state_;
};

class WorkerService final : public fleet::v1::Worker::CallbackService {
 public:
  explicit WorkerService(State* state) : state_(state) {}
  grpc::ServerWriteReactor<fleet::v1::WatchEvent>* Watch(grpc::CallbackServerContext*,
                                                         const fleet::v1::WatchRequest* request) override {
    auto stream = rpc::ServerStream<fleet::v1::WatchEvent>::Create();
    fleet::v1::WatchEvent event;
    event.set_sequence(1);
    absl::MutexLock lock(&state_->mutex);
    const FakeWorker::Options options = state_->options;
    fleet::v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
    info->set_worker_id(options.id);
    info->set_role(options.role);
    info->set_incarnation(options.incarnation);
    *info->mutable_fingerprint() = options.fingerprint;
    info->set_vocabulary_tokens(options.vocabulary);
    info->set_tokenizer_digest(options.tokenizer_digest);
    info->set_ends_digest(options.ends_digest);
    info->set_block_hash_domain(options.block_hash_domain);
    info->set_peer_fetch(options.peer_fetch);
    event.mutable_snapshot()->set_stored(options.stored);
    *event.mutable_snapshot()->mutable_load() = state_->load;
    event.mutable_snapshot()->set_draining(state_->draining);
    ++state_->counts.watches;
    state_->counts.targets = request->targets();
    if (!state_->silent) stream->Send(std::move(event));
    state_->watches.push_back({stream});
    return stream->reactor();
  }

 private:
  State* const state_;
};

}  // namespace

Step Step::Accept() {
  Step step;
  step.event.mutable_accepted()->set_reserved_blocks(1);
  return step;
}

Step Step::Token(int32_t id, const std::string& text) {
  Step step;
  v1::Delta* delta = step.event.mutable_delta();
  delta->set_text(text);
  delta->add_token_ids(id);
  delta->set_tokens(1);
  return step;
}

Step Step::Finish(v1::FinishReason reason) {
  Step step;
  v1::Finished* finished = step.event.mutable_finished();
  finished->set_reason(reason);
  finished->mutable_timing()->set_decode_queue_seconds(1e-6);
  finished->mutable_timing()->set_prefill_seconds(2e-6);
  return step;
}

Step Step::Hold() {
  Step step;
  step.kind = Kind::kHold;
  return step;
}

Step Step::Until(absl::Time time) {
  Step step;
  step.kind = Kind::kUntil;
  step.until = time;
  return step;
}

Step Step::End(absl::Status status) {
  Step step;
  step.kind = Kind::kEnd;
  step.status = std::move(status);
  return step;
}

struct FakeWorker::Parts {
  State state;
  DecodeService decode{&state};
  WorkerService worker{&state};
  std::unique_ptr<rpc::Server> server;
  std::string address;

  void Publish(const fleet::v1::WatchDelta& delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) {
    for (State::Watch& watch : state.watches) {
      watch.sequence += 1 + state.skip;
      fleet::v1::WatchEvent event;
      event.set_sequence(watch.sequence);
      *event.mutable_delta() = delta;
      watch.stream->Send(std::move(event));
    }
    state.skip = 0;
  }
};

absl::StatusOr<std::unique_ptr<FakeWorker>> FakeWorker::Start(Options options) {
  auto parts = std::make_unique<Parts>();
  std::vector<grpc::Service*> services = {&parts->worker};
  if (options.role == fleet::v1::ROLE_DECODE) services.push_back(&parts->decode);
  rpc::ServerOptions listen;
  listen.listen = options.listen;
  listen.keepalive.timeout =
      Scaled(absl::Seconds(60));  // on a loaded machine a living peer may be silent for seconds
  {
    absl::MutexLock lock(&parts->state.mutex);
    parts->state.load.set_total_blocks(options.total_blocks);
    parts->state.load.set_free_blocks(options.total_blocks);
    parts->state.options = std::move(options);
  }
  auto server = rpc::Server::Start(listen, services);
  if (!server.ok()) return server.status();
  parts->server = *std::move(server);
  parts->address = parts->server->address();
  return std::unique_ptr<FakeWorker>(new FakeWorker(std::move(parts)));
}

FakeWorker::FakeWorker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

FakeWorker::~FakeWorker() { Kill(); }

const std::string& FakeWorker::address() const { return parts_->address; }

void FakeWorker::SetScript(std::function<Script(const fleet::v1::DecodeRequest&)> script) {
  absl::MutexLock lock(&parts_->state.mutex);
  parts_->state.script = std::move(script);
}

void FakeWorker::Release() {
  absl::MutexLock lock(&parts_->state.mutex);
  const std::vector<ScriptedCall*> holding = std::exchange(parts_->state.holding, {});
  parts_->state.counts.held = 0;
  for (ScriptedCall* call : holding) call->Resume();
}

void FakeWorker::Report(const fleet::v1::Load& load) {
  absl::MutexLock lock(&parts_->state.mutex);
  parts_->state.load = load;
  fleet::v1::WatchDelta delta;
  *delta.mutable_load() = load;
  parts_->Publish(delta);
}

void FakeWorker::ReportDraining(bool draining) {
  absl::MutexLock lock(&parts_->state.mutex);
  parts_->state.draining = draining;
  fleet::v1::WatchDelta delta;
  delta.set_draining(draining);
  parts_->Publish(delta);
}

void FakeWorker::LoseAnEvent() {
  absl::MutexLock lock(&parts_->state.mutex);
  ++parts_->state.skip;
}

void FakeWorker::BreakWatches() {
  absl::MutexLock lock(&parts_->state.mutex);
  for (State::Watch& watch : parts_->state.watches) watch.stream->Finish(absl::UnavailableError("broken"));
  parts_->state.watches.clear();
}

void FakeWorker::SetSilent(bool silent) {
  absl::MutexLock lock(&parts_->state.mutex);
  parts_->state.silent = silent;
}

void FakeWorker::SetFingerprint(const fleet::v1::Fingerprint& fingerprint) {
  absl::MutexLock lock(&parts_->state.mutex);
  parts_->state.options.fingerprint = fingerprint;
}

FakeWorker::Counts FakeWorker::counts() const {
  absl::MutexLock lock(&parts_->state.mutex);
  return parts_->state.counts;
}

std::vector<fleet::v1::DecodeRequest> FakeWorker::requests() const {
  absl::MutexLock lock(&parts_->state.mutex);
  return parts_->state.requests;
}

bool FakeWorker::Await(const std::function<bool(const Counts&)>& condition) const {
  const State& state = parts_->state;
  const auto met = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) { return condition(state.counts); };
  absl::MutexLock lock(&state.mutex);
  return state.mutex.AwaitWithTimeout(absl::Condition(&met), Scaled(absl::Seconds(30)));
}

void FakeWorker::Kill() {
  if (parts_->server == nullptr) return;
  parts_->server->Shutdown(absl::ZeroDuration());
  parts_->server = nullptr;
  absl::MutexLock lock(&parts_->state.mutex);
  parts_->state.watches.clear();
}

}  // namespace baton::fakes
