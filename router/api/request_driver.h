// RequestDriver: drives one RequestFlow between a client's stream, the executor, the dispatcher and the
// decode workers. It knows no transport: the client is a ClientStream, workers are reached by a DecodeClient.
// Events may come on any thread at any time; they are queued and handled one after the other by the thread
// that found the queue idle, without a lock held, so no thread waits and an action may cause further events.
//
// Held by shared_ptr: the client's stream, and every callback that is still to come, hold it. It holds the
// client's stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "router/api/call_name.h"
#include "router/api/classifiers.h"
#include "router/api/client_stream.h"
#include "router/api/decode_client.h"
#include "router/api/executor.h"
#include "router/api/held_answers.h"
#include "router/api/live_calls.h"
#include "router/api/load_report.h"
#include "router/api/request_flow.h"
#include "router/api/request_preparer.h"
#include "router/billing/ledger.h"
#include "router/billing/price_file.h"
#include "router/dispatch/dispatcher.h"
#include "router/metrics/probe.h"
#include "router/moderation/probe.h"
#include "router/moderation/verdict.h"
#include "router/tenancy/authenticator.h"

namespace baton::router {

// The workers that serve a model: who places requests on them, who they are, and what counts them.
struct ModelFleet {
  Dispatcher* dispatcher = nullptr;
  const fleet::Fleet* fleet = nullptr;
  Probe* probe = nullptr;
};

// Shared by all calls; all of it outlives them.
struct CallContext {
  const Authenticator* authenticator = nullptr;
  const RequestPreparer* preparer = nullptr;
  std::vector<ModelFleet> fleets;  // by ServedModel::fleet; at least one
  DecodeClient* decode = nullptr;
  Executor* executor = nullptr;
  Executor* grammars = nullptr;  // compiles grammars that are new, and does nothing else
  const Clock* clock = nullptr;
  Probe* probe = nullptr;  // of calls whose model is not known
  LiveCalls* live = nullptr;
  LoadReport* load = nullptr;                  // null: clients hear nothing of the router's load
  billing::Ledger* ledger = nullptr;           // null: nothing is recorded
  const billing::PriceFile* prices = nullptr;  // null: no model has a price
  SessionPrompts* sessions = nullptr;          // null: no misses are explained
  const telemetry::Tracer* tracer = nullptr;   // null: no request is recorded, nor has a trace of its own
  std::string router_id;
  HeldAnswers* held = nullptr;  // null: none is held, whatever key it has
  int max_attempts = 3;
  int max_migrations = 3;
  absl::Duration client_stall = absl::InfiniteDuration();
  const Classifiers* classifiers = nullptr;  // null: nothing can be moderated
  moderation::Probe* moderation = nullptr;   // null: nobody counts it
  // For the router's own requests, for verdicts: not counted among the clients', never moderated.
  bool internal = false;
};

class RequestDriver final : public LiveCall,
                            public AnswerCall,
                            public std::enable_shared_from_this<RequestDriver> {
 public:
  // `deadline`, on the context's clock: when the request is to end, at the latest. `method`: the one that was
  // called; a constant. `trace`: what the client says of it.
  static std::shared_ptr<RequestDriver> Create(const CallContext& context,
                                               std::shared_ptr<ClientStream> client, absl::Time deadline,
                                               std::string_view method,
                                               const telemetry::TraceContext& trace = {},
                                               CallName name = NameInternalCall());

  // Makes the request of the client's message; its error is the client's answer. It may be called after Start
  // has returned, on another thread.
  template <typename Request>
  using Parse = std::function<absl::Status(Request* request)>;
  // Begins, once: authenticates, then parses and checks the message, of `bytes` bytes: here if it is short,
  // on the executor otherwise. Whatever happens, the client's stream is finished in the end. Request is
  // GenerateRequest or ChatRequest.
  template <typename Request>
  void Start(const Credentials& credentials, size_t bytes, Parse<Request> parse);

  // Begins, once, in place of Start: the client goes on with an answer that is held, or brings its request.
  void Resume(const Credentials& credentials, size_t bytes, Parse<v1::ResumeRequest> parse);

  // Begins a request of the router's own, once, in place of Start. It need not be checked.
  void StartInternal(std::shared_ptr<const Tenant> tenant, v1::ChatRequest request);

  // From the client's stream: a Write has left, or (not ok) the client is gone.
  void OnWritten(bool ok);
  // From the client's stream: the client cancelled or went away, or its deadline has passed.
  void OnCancelled();

  std::function<void()> IfStalled(absl::Time now) override;
  std::function<void()> AtDeadline() override;
  std::function<void()> AtDrain() override;

  // AnswerCall, of the answer that its client reads.
  void Produce(std::optional<Begun> begun, std::optional<Drawn> drawn,
               const billing::TokenCounts& charged) override;
  void OnTaken() override;
  void OnUnread() override;
  void OnWriting() override;
  void OnServed(const absl::Status& status) override;

 private:
  using Event = std::function<Actions(RequestFlow&)>;

  RequestDriver(const CallContext& context, std::shared_ptr<ClientStream> client, absl::Time deadline,
                std::string_view method, const telemetry::TraceContext& trace, CallName name);

  bool FindCaller(const Credentials& credentials);
  // Parses and checks.
  template <typename Request>
  absl::Status Read(const Parse<Request>& parse, Request* request);
  template <typename Request>
  absl::Status Check(Request* request) const;
  // A request that was read: computes its answer, or joins the one that its idempotency key names.
  template <typename Request>
  bool Begin(size_t bytes, const std::shared_ptr<Request>& request, bool at_once);
  // The same of what a client brings that resumes.
  absl::Status ReadResume(size_t bytes, const Parse<v1::ResumeRequest>& parse);
  template <typename Request>
  absl::Status ResumeWith(const v1::ResumeRequest& resumed, size_t bytes, Request request);
  // Computes the answer from its beginning.
  template <typename Request>
  void Compute(size_t bytes, const std::shared_ptr<Request>& request);
  // The client reads an answer that is held, behind so many tokens. `compute` begins it, as it was drawn if
  // it is not the first time; null: the request is not known here. `find`: looks
  // for the answer again, should it have gone.
  using ComputeAnew = std::function<void(const std::optional<Drawn>& drawn)>;
  using FindAnswer = std::function<absl::StatusOr<std::shared_ptr<HeldAnswer>>()>;
  void Join(FindAnswer find, std::vector<uint32_t> after, ComputeAnew compute);
  // On the executor.
  template <typename Request>
  void SubmitJob(size_t bytes, std::shared_ptr<Request> request, Parse<Request> parse);
  // Prepares a request that was read, if its grammar is none or known; otherwise has that compiled first.
  // False: it found that the call is over before it was done.
  template <typename Request>
  bool PrepareOrCompile(size_t bytes, const std::shared_ptr<Request>& request);
  // On the grammars' executor, and then on the other one.
  template <typename Request>
  void SubmitGrammar(size_t bytes, std::shared_ptr<Request> request);
  // Renders, tokenizes and hashes; likewise.
  template <typename Request>
  bool Prepare(const Request& request, std::optional<baton::fleet::v1::AnswerGrammar> grammar);
  // A job of this call.
  Executor::Job JobOf(size_t bytes, std::function<bool()> work);
  void Refuse(absl::Status status);
  // True if the client still waits for an answer. Any thread.
  bool Wanted() const;
  void Post(Event event);

  // Performing actions: only the thread that drains the inbox.
  void Do(Submit& submit);
  void Do(Requeue& requeue);
  void Do(Withdraw& withdraw);
  void Do(Judge& judge);
  void Do(StopJudging&);
  void Do(Dial& dial);
  void Do(ReadNext& next);
  void Do(HangUp& hang_up);
  void Do(Write& write);
  void Do(WriteLast& last);
  void Do(Break& break_off);
  void Do(Finish& finish);
  // The request's usage; nothing if no worker accepted it.
  std::optional<v1::RequestUsage> Usage() const;
  billing::UsageRecord RecordOf(absl::StatusCode code) const;
  // Ends the client's stream once the ledger has the request.
  void FinishClient(const absl::Status& status, std::optional<v1::GenerateResponse> last);
  // The request is over, except for its last message on the way.
  void Settle(const admission::Meter::Use& used);

  const CallContext& context_;
  const absl::Time deadline_;
  std::atomic<int64_t> writing_since_{0};  // nanoseconds on our clock; 0: not writing
  std::atomic<bool> cancelled_{false};
  // Once it can be asked. Before, so destroyed after, all that shutdown waits for.
  std::optional<LiveCalls::Guard> alive_;

  absl::Mutex mutex_;
  std::deque<Event> inbox_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;

  const std::string_view method_;
  std::shared_ptr<const Tenant> tenant_;  // set before anything else happens; null: a stranger calls
  std::string key_;                       // likewise (Caller)
  // The draining thread's.
  std::shared_ptr<ClientStream> client_;  // the answer that it computes, if that is held
  // The answer that its client reads, and its place there; null: the client reads from this driver alone.
  std::shared_ptr<HeldAnswer> held_;
  // The name by which an answer with a key is charged that is not held (RequestOptions.not_held).
  std::optional<HeldAnswer::Name> not_held_;
  std::shared_ptr<HeldAnswer::Reader> reader_;
  ComputeAnew compute_;           // while it may be asked to
  billing::TokenCounts charged_;  // that was recorded of the answer before
  std::atomic<uint32_t> max_answer_bytes_{0};
  Dispatcher* dispatcher_ = nullptr;  // of the model's fleet; set with request_
  RequestFlow flow_;
  std::shared_ptr<const DispatchRequest> request_;  // until the request is over: it holds this driver
  std::vector<admission::EntryId> entries_;         // by choice
  std::optional<admission::EntryId> account_;       // to be settled
  std::vector<std::shared_ptr<DecodeCall>> calls_;  // by choice
  // The last of each choice, and of the prompt (Judge::kPrompt).
  std::map<int, std::shared_ptr<moderation::Judgement>> judgements_;
};

}  // namespace baton::router
