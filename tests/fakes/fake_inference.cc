#include "tests/fakes/fake_inference.h"

#include <fmt/format.h>
#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/check.h"
#include "common/rpc/server.h"
#include "common/rpc/server_stream.h"
#include "tests/patience.h"

namespace baton::fakes {
namespace {

const absl::Duration kGenerous = Scaled(absl::Seconds(60));

struct Counts {
  absl::Mutex mutex;
  int open ABSL_GUARDED_BY(mutex) = 0;
  int max_open ABSL_GUARDED_BY(mutex) = 0;
  int cancelled ABSL_GUARDED_BY(mutex) = 0;
};

// Plays one script on one stream, whose callbacks keep it alive until the call is done. Not the alarm: it is
// a member and never releases its callback.
template <typename Response>
class Player : public std::enable_shared_from_this<Player<Response>> {
 public:
  using Stream = rpc::ServerStream<Response>;

  Player(std::shared_ptr<Stream> stream, Script script, std::shared_ptr<Counts> counts)
      : stream_(std::move(stream)), counts_(std::move(counts)), script_(std::move(script)) {}

  void Start() {
    {
      absl::MutexLock lock(&counts_->mutex);
      counts_->max_open = std::max(counts_->max_open, ++counts_->open);
    }
    stream_->Listen({.cancelled = [self = this->shared_from_this()] { self->OnCancelled(); },
                     .drained = [self = this->shared_from_this()] { self->Play(); }});
    Play();
  }

 private:
  void Go() {
    {
      absl::MutexLock lock(&mutex_);
      waiting_ = false;
    }
    Play();
  }

  void Play() {
    absl::MutexLock lock(&mutex_);
    while (!ended_ && next_ < script_.steps.size()) {
      Script::Step& step = script_.steps[next_];
      if (waiting_ || step.wait == absl::InfiniteDuration()) return;
      if (step.wait > absl::ZeroDuration()) {
        const absl::Duration wait = std::exchange(step.wait, absl::ZeroDuration());
        waiting_ = true;
        alarm_ = std::make_unique<grpc::Alarm>();
        alarm_->Set(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(wait),
                    [weak = this->weak_from_this()](bool fired) {
                      if (const auto self = weak.lock(); self != nullptr && fired) self->Go();
                    });
        return;
      }
      Response same;  // with the fields of a GenerateResponse
      BATON_CHECK(same.ParseFromString(step.event.SerializeAsString()));
      stream_->Send(std::move(same));
      ++next_;
    }
    // An error drops what the client has not taken yet; scripts mean what they say, so it waits for that.
    if (!ended_ && next_ == script_.steps.size() && stream_->outbox_bytes() == 0) {
      End();
      stream_->Finish(script_.end);
    }
  }

  void OnCancelled() {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    End();
    if (alarm_ != nullptr) alarm_->Cancel();
    absl::MutexLock counts_lock(&counts_->mutex);
    ++counts_->cancelled;
  }

  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ended_ = true;
    absl::MutexLock lock(&counts_->mutex);
    --counts_->open;
  }

  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<Counts> counts_;
  absl::Mutex mutex_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

Script CountUp(const v1::GenerateRequest& request) {
  const uint32_t count = request.stop().has_max_tokens() ? request.stop().max_tokens() : 8;
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(i);
  const auto prompt = static_cast<uint32_t>(
      request.has_token_ids() ? request.token_ids().ids_size() : static_cast<int>(request.text().size()));
  return AnswerWith(tokens, prompt);
}

Script Echo(const v1::ChatRequest& request) {
  const auto& messages = request.conversation().messages();
  Script script = AnswerWith({7}, static_cast<uint32_t>(messages.size()));
  script.steps[1].event.mutable_delta()->set_text("you said: " + messages.rbegin()->content());
  return script;
}

v1::ModerateResponse Judge(const v1::ModerateRequest& request) {
  v1::ModerateResponse response;
  response.set_model(request.model().empty() ? "fake-guard" : request.model());
  for (const std::string& text : request.texts()) {
    v1::ModerationResult& result = *response.add_results();
    result.set_flagged(text.find("bad") != std::string::npos);
    v1::ModerationCategory& category = *result.add_categories();
    category.set_name("violence");
    category.set_score(result.flagged() ? 0.75f : 0.25f);
  }
  return response;
}

}  // namespace

Script AnswerWith(const std::vector<int32_t>& tokens, uint32_t prompt_tokens, absl::Duration first,
                  absl::Duration gap) {
  Script script;
  const auto add = [&](absl::Duration wait) -> v1::GenerateResponse& {
    script.steps.push_back({wait, {}});
    return script.steps.back().event;
  };
  v1::Started& started = *add({}).mutable_started();
  started.set_request_id("fake-1");
  started.set_model("fake");
  started.set_seed(42);
  started.set_prompt_tokens(prompt_tokens);
  started.set_build("fedcba9876543210");
  for (size_t i = 0; i < tokens.size(); ++i) {
    v1::Delta& delta = *add(i == 0 ? first : gap).mutable_delta();
    delta.set_text(fmt::format("t{} ", tokens[i]));
    delta.add_token_ids(tokens[i]);
    delta.add_logits_digests(static_cast<uint32_t>(tokens[i]));
    delta.set_tokens(1);
  }
  v1::Finished& finished = *add({}).mutable_finished();
  finished.set_reason(v1::FINISH_REASON_LENGTH);
  finished.mutable_usage()->set_prompt_tokens(prompt_tokens);
  finished.mutable_usage()->set_completion_tokens(static_cast<uint32_t>(tokens.size()));
  v1::Timing& timing = *finished.mutable_timing();
  timing.set_admit_seconds(0.001);
  timing.set_prefill_seconds(absl::ToDoubleSeconds(first));
  timing.set_ttft_seconds(0.001 + absl::ToDoubleSeconds(first));
  if (tokens.size() > 1) timing.set_tpot_seconds(absl::ToDoubleSeconds(gap));
  timing.set_e2e_seconds(timing.ttft_seconds() +
                         absl::ToDoubleSeconds(gap) * static_cast<double>(tokens.size()));
  finished.mutable_relay()->set_decode_worker("fake-decode");
  finished.mutable_relay()->set_prefill_worker("fake-prefill");
  finished.mutable_relay()->set_link("host");
  return script;
}

class FakeInference::Service final : public v1::Inference::CallbackService {
 public:
  explicit Service(FakeInferenceOptions options) : options_(std::move(options)) {
    absl::StatusOr<std::unique_ptr<rpc::Server>> server =
        rpc::Server::Start({.keepalive = {.interval = kGenerous, .timeout = kGenerous}}, {this});
    BATON_CHECK(server.ok()) << server.status().ToString();
    server_ = std::move(server).value();
  }
  ~Service() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest* request) override {
    {
      absl::MutexLock lock(&mutex_);
      generate_requests_.push_back(*request);
    }
    return Play<v1::GenerateResponse>(options_.generate ? options_.generate(*request) : CountUp(*request));
  }
  grpc::ServerWriteReactor<v1::ChatResponse>* Chat(grpc::CallbackServerContext*,
                                                   const v1::ChatRequest* request) override {
    {
      absl::MutexLock lock(&mutex_);
      chat_requests_.push_back(*request);
    }
    return Play<v1::ChatResponse>(options_.chat ? options_.chat(*request) : Echo(*request));
  }
  grpc::ServerWriteReactor<v1::ResumeResponse>* Resume(grpc::CallbackServerContext*,
                                                       const v1::ResumeRequest* request) override {
    {
      absl::MutexLock lock(&mutex_);
      resume_requests_.push_back(*request);
    }
    return Play<v1::ResumeResponse>(
        options_.resume ? options_.resume(*request)
                        : Script{.end = absl::UnimplementedError("this fake holds no answers")});
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    v1::ModelInfo& model = *response->add_models();
    model.set_name(options_.model);
    model.set_context_tokens(options_.context_tokens);
    model.set_vocabulary_tokens(options_.vocabulary_tokens);
    model.set_ready_prefill_workers(1);
    model.set_ready_decode_workers(options_.decode_workers ? options_.decode_workers() : 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* CountTokens(grpc::CallbackServerContext* context,
                                        const v1::CountTokensRequest* request,
                                        v1::CountTokensResponse* response) override {
    response->set_prompt_tokens(static_cast<uint32_t>(TokensOf(request->chat().conversation())));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    const int tokens = request->has_generate() ? static_cast<int>(request->generate().text().size())
                                               : TokensOf(request->chat().conversation());
    for (int i = 0; i < tokens; ++i) response->add_token_ids(i);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    for (const int32_t id : request->token_ids()) {
      response->mutable_text()->append(fmt::format("p{} ", id));
      if (request->pieces()) response->add_pieces(fmt::format("p{} ", id));
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Moderate(grpc::CallbackServerContext* context, const v1::ModerateRequest* request,
                                     v1::ModerateResponse* response) override {
    *response = options_.moderate ? options_.moderate(*request) : Judge(*request);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const std::string& address() const { return server_->address(); }
  void SetServing(bool serving) { server_->SetServing(serving); }
  std::vector<v1::GenerateRequest> generate_requests() const {
    absl::MutexLock lock(&mutex_);
    return generate_requests_;
  }
  std::vector<v1::ChatRequest> chat_requests() const {
    absl::MutexLock lock(&mutex_);
    return chat_requests_;
  }
  std::vector<v1::ResumeRequest> resume_requests() const {
    absl::MutexLock lock(&mutex_);
    return resume_requests_;
  }
  Counts& counts() const { return *counts_; }

 private:
  int TokensOf(const v1::Conversation& conversation) const {
    return options_.tokens ? options_.tokens(conversation) : conversation.messages_size();
  }

  template <typename Response>
  grpc::ServerWriteReactor<Response>* Play(Script script) {
    auto stream = rpc::ServerStream<Response>::Create();
    auto* reactor = stream->reactor();
    std::make_shared<Player<Response>>(std::move(stream), std::move(script), counts_)->Start();
    return reactor;
  }

  const FakeInferenceOptions options_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  mutable absl::Mutex mutex_;
  std::vector<v1::GenerateRequest> generate_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ChatRequest> chat_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ResumeRequest> resume_requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<rpc::Server> server_;
};

FakeInference::FakeInference(FakeInferenceOptions options)
    : service_(std::make_unique<Service>(std::move(options))) {}
FakeInference::~FakeInference() = default;

const std::string& FakeInference::address() const { return service_->address(); }
void FakeInference::SetServing(bool serving) { service_->SetServing(serving); }
std::vector<v1::GenerateRequest> FakeInference::generate_requests() const {
  return service_->generate_requests();
}
std::vector<v1::ChatRequest> FakeInference::chat_requests() const { return service_->chat_requests(); }

std::vector<v1::ResumeRequest> FakeInference::resume_requests() const { return service_->resume_requests(); }

bool FakeInference::WaitForCancelled(int count) const {
  Counts& counts = service_->counts();
  absl::MutexLock lock(&counts.mutex);
  const auto reached = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(counts.mutex) { return counts.cancelled >= count; };
  return counts.mutex.AwaitWithTimeout(absl::Condition(&reached), kGenerous);
}

int FakeInference::open() const {
  Counts& counts = service_->counts();
  absl::MutexLock lock(&counts.mutex);
  return counts.open;
}

int FakeInference::max_open() const {
  Counts& counts = service_->counts();
  absl::MutexLock lock(&counts.mutex);
  return counts.max_open;
}

}  // namespace baton::fakes
