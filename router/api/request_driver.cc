#include "router/api/request_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "protocol/client/token_ids.h"
#include "protocol/prompt_chain.h"
#include "router/api/reusable_parts.h"
#include "router/api/usage.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

// A message of at most so many bytes is parsed and checked where it comes in, in some 100 us; a larger one on
// the executor.
constexpr size_t kParseAtOnceBytes = Executor::kLargeBytes;

// Nothing is to be done but to hash.
bool IsCheap(const v1::GenerateRequest& request) {
  return request.has_token_ids() && !request.has_constraint();
}
bool IsCheap(const v1::ChatRequest&) { return false; }

// The end as a client is told it, and what is left of an answer that is held.
struct End {
  absl::Status status;
  std::optional<v1::GenerateResponse> last;
  std::optional<v1::RequestUsage> usage;
  std::optional<HeldAnswer::Remains> remains;
};

// The part of `total` that is not in `charged`. A prompt is charged once, whatever was found of it in caches
// later.
billing::TokenCounts Uncharged(const billing::TokenCounts& total, const billing::TokenCounts& charged) {
  billing::TokenCounts left = total;
  if (charged.prompt() > 0) {
    left.decode_cached = left.prefill_cached = left.written_5m = left.written_1h = left.plain = 0;
  }
  const auto less = [](int64_t& count, int64_t by) { count = std::max<int64_t>(0, count - by); };
  less(left.completion, charged.completion);
  less(left.thinking, charged.thinking);
  less(left.drafted, charged.drafted);
  less(left.accepted, charged.accepted);
  return left;
}

// The hashes of the prompt's blocks as the workers make them.
std::vector<kv::BlockHash> ChainOf(const baton::fleet::v1::DecodeRequest& request,
                                   const std::string& domain) {
  if (domain.empty()) return {};  // no worker is up, or none says
  std::vector<TokenId> tokens = protocol::TokensOf(request.token_ids());
  tokens.resize(tokens.size() - request.resumed_tokens());
  const kv::BlockHash root = kv::RootHash(domain, kv::TenantSalt(request.salt()));
  return kv::PromptChain(root, ReusableSpansOf(request)).Hashes(tokens);
}

}  // namespace

std::shared_ptr<RequestDriver> RequestDriver::Create(const CallContext& context,
                                                     std::shared_ptr<ClientStream> client,
                                                     absl::Time deadline, std::string_view method,
                                                     const telemetry::TraceContext& trace, CallName name) {
  std::shared_ptr<RequestDriver> driver(
      new RequestDriver(context, std::move(client), deadline, method, trace, std::move(name)));
  driver->alive_.emplace(*context.live, *driver, deadline);
  return driver;
}

RequestDriver::RequestDriver(const CallContext& context, std::shared_ptr<ClientStream> client,
                             absl::Time deadline, std::string_view method,
                             const telemetry::TraceContext& trace, CallName name)
    : context_(context),
      deadline_(deadline),
      method_(method),
      client_(std::move(client)),
      flow_({.request_id = std::move(name.id),
             .client_request_id = std::move(name.client_id),
             .router_id = context.router_id,
             .max_attempts = context.max_attempts,
             .max_migrations = context.max_migrations,
             .arrival = context.clock->Now(),
             .deadline = deadline,
             .client_stall = context.client_stall,
             .sessions = context.sessions,
             .tracer = context.tracer,
             .trace = trace,
             .method = method,
             .internal = context.internal,
             .moderation = context.moderation},
            *context.clock, *context.probe) {}

bool RequestDriver::FindCaller(const Credentials& credentials) {
  auto caller = context_.authenticator->Authenticate(credentials);
  if (!caller.ok()) {
    Refuse(caller.status());
    return false;
  }
  tenant_ = std::move(caller->tenant);
  key_ = std::move(caller->key);
  return true;
}

template <typename Request>
void RequestDriver::Start(const Credentials& credentials, size_t bytes, Parse<Request> parse) {
  if (!FindCaller(credentials)) return;
  auto request = std::make_shared<Request>();
  if (bytes > kParseAtOnceBytes) return SubmitJob(bytes, std::move(request), std::move(parse));
  if (absl::Status status = Read(parse, request.get()); !status.ok()) return Refuse(std::move(status));
  Begin(bytes, request, /*at_once=*/false);
}

template <typename Request>
void RequestDriver::Compute(size_t bytes, const std::shared_ptr<Request>& request) {
  if (IsCheap(*request)) {
    Prepare(*request, std::nullopt);
  } else {
    SubmitJob<Request>(bytes, request, nullptr);
  }
}

void RequestDriver::OnWriting() {
  writing_since_.store(absl::ToUnixNanos(context_.clock->Now()), std::memory_order_release);
}

void RequestDriver::StartInternal(std::shared_ptr<const Tenant> tenant, v1::ChatRequest request) {
  tenant_ = std::move(tenant);
  const size_t bytes = request.ByteSizeLong();
  SubmitJob<v1::ChatRequest>(bytes, std::make_shared<v1::ChatRequest>(std::move(request)), nullptr);
}

template <typename Request>
void RequestDriver::SubmitJob(size_t bytes, std::shared_ptr<Request> request, Parse<Request> parse) {
  Executor::Job job = JobOf(bytes, [this, bytes, request, parse = std::move(parse)] {
    if (parse == nullptr) return PrepareOrCompile(bytes, request);
    if (absl::Status status = Read(parse, request.get()); !status.ok()) {
      Refuse(std::move(status));
      return true;
    }
    return Begin(bytes, request, /*at_once=*/true);
  });
  if (!context_.executor->TrySubmit(std::move(job))) Refuse(context_.executor->Full());
}

template <typename Request>
bool RequestDriver::PrepareOrCompile(size_t bytes, const std::shared_ptr<Request>& request) {
  RequestPreparer::Grammar grammar = context_.preparer->GrammarOf(*request, GrammarCheck::Effort::kLookUp);
  if (GrammarCheck::IsNew(grammar.status())) {
    SubmitGrammar(bytes, request);
  } else if (!grammar.ok()) {
    Refuse(grammar.status());
  } else {
    return Prepare(*request, *std::move(grammar));
  }
  return true;
}

template <typename Request>
void RequestDriver::SubmitGrammar(size_t bytes, std::shared_ptr<Request> request) {
  Executor::Job job = JobOf(bytes, [this, bytes, request] {
    auto grammar = std::make_shared<RequestPreparer::Grammar>(
        context_.preparer->GrammarOf(*request, GrammarCheck::Effort::kCompile));
    if (!grammar->ok()) {
      Refuse(grammar->status());
      return true;
    }
    Executor::Job rest =
        JobOf(bytes, [this, request, grammar] { return Prepare(*request, std::move(**grammar)); });
    if (!context_.executor->TrySubmit(std::move(rest))) Refuse(context_.executor->Full());
    return true;
  });
  job.weight = 0;  // a small one may take as long as a large one
  if (!context_.grammars->TrySubmit(std::move(job))) Refuse(context_.grammars->Full());
}

Executor::Job RequestDriver::JobOf(size_t bytes, std::function<bool()> work) {
  const std::shared_ptr<RequestDriver> self = shared_from_this();
  Executor::Job job;
  job.tenant = tenant_->id;
  job.bytes = bytes;
  job.wanted = [self] { return self->Wanted(); };
  job.work = [self, work = std::move(work)] { return work(); };
  job.drop = [self] {
    self->Refuse(absl::CancelledError("the call was over before its prompt was prepared"));
  };
  return job;
}

template void RequestDriver::Compute(size_t, const std::shared_ptr<v1::GenerateRequest>&);
template void RequestDriver::Compute(size_t, const std::shared_ptr<v1::ChatRequest>&);
template absl::Status RequestDriver::Check(v1::GenerateRequest*) const;
template absl::Status RequestDriver::Check(v1::ChatRequest*) const;
template bool RequestDriver::PrepareOrCompile(size_t, const std::shared_ptr<v1::GenerateRequest>&);
template bool RequestDriver::PrepareOrCompile(size_t, const std::shared_ptr<v1::ChatRequest>&);
template void RequestDriver::Start(const Credentials&, size_t, Parse<v1::GenerateRequest>);
template void RequestDriver::Start(const Credentials&, size_t, Parse<v1::ChatRequest>);

template <typename Request>
absl::Status RequestDriver::Read(const Parse<Request>& parse, Request* request) {
  BATON_RETURN_IF_ERROR(parse(request));
  max_answer_bytes_.store(client_->max_answer_bytes(), std::memory_order_relaxed);
  return Check(request);
}

template <typename Request>
absl::Status RequestDriver::Check(Request* request) const {
  BATON_RETURN_IF_ERROR(context_.preparer->models().Resolve(*tenant_, request));
  BATON_RETURN_IF_ERROR(context_.preparer->Check(*request, max_answer_bytes_));
  if (context_.classifiers != nullptr) {
    BATON_RETURN_IF_ERROR(context_.classifiers->CheckNone(request->model()));
  }
  BATON_RETURN_IF_ERROR(Classifiers::Plan(context_.classifiers, *request, *tenant_).status());
  return context_.authenticator->CheckPriority(*tenant_, request->options().priority());
}

template <typename Request>
bool RequestDriver::Prepare(const Request& request, std::optional<baton::fleet::v1::AnswerGrammar> grammar) {
  auto prepared = std::make_shared<absl::StatusOr<Prepared>>(context_.preparer->Prepare(
      request, *tenant_, std::move(grammar), [this] { return Wanted(); }, max_answer_bytes_));
  if (prepared->ok()) {
    context_.probe->Neutralised((*prepared)->neutralised);
    if (context_.prices != nullptr) (*prepared)->price = context_.prices->Find((*prepared)->model->name);
    if (!context_.internal) {
      auto plan = Classifiers::Plan(context_.classifiers, request, *tenant_);
      // It was checked, and nothing that it says can have changed since.
      BATON_CHECK(plan.ok()) << plan.status();
      if (plan->has_value()) SetTexts(request, *(*prepared)->model, &**plan);
      (*prepared)->moderation = *std::move(plan);
    }
    const ModelFleet& fleet = context_.fleets[(*prepared)->model->fleet];
    const std::shared_ptr<const fleet::View> view = fleet.fleet->view();
    (*prepared)->build = request.options().build();
    (*prepared)->progress = request.output().progress();
    if (!(*prepared)->build.empty() && !view->decode.empty()) {
      const std::string serves = (*prepared)->model->BuildWith(view->answer_digest);
      if (serves != (*prepared)->build) {
        Refuse(BuildNotServed(serves));
        return true;
      }
    }
    if ((*prepared)->request.reusable_size() > 0 && !view->chunk_reuse) {
      Refuse(absl::FailedPreconditionError(
          "reusable: not all workers of this model take reusable spans: mark none, or start them with "
          "--chunk-reuse"));
      return true;
    }
    (*prepared)->probe = fleet.probe;
    fleet.probe->MadeToFit((*prepared)->context.removed_tokens(), (*prepared)->context.clamped_max_tokens());
    // Before the first worker has come, nobody knows what its hashes are made of.
    if (!view->decode.empty() || !view->block_hash_domain.empty()) {
      (*prepared)->chain = ChainOf((*prepared)->request, view->block_hash_domain);
    }
  }
  const bool finished = !absl::IsCancelled(prepared->status());
  Post([prepared](RequestFlow& flow) { return flow.OnPrepared(std::move(*prepared)); });
  return finished;
}

void RequestDriver::Refuse(absl::Status status) {
  Post([status = std::move(status)](RequestFlow& flow) { return flow.OnPrepared(status); });
}

bool RequestDriver::Wanted() const {
  return !cancelled_.load(std::memory_order_relaxed) && context_.clock->Now() < deadline_;
}

void RequestDriver::Post(Event event) {
  const std::shared_ptr<RequestDriver> self = shared_from_this();
  {
    absl::MutexLock lock(&mutex_);
    inbox_.push_back(std::move(event));
    if (draining_) return;
    draining_ = true;
  }
  while (true) {
    Event next;
    {
      absl::MutexLock lock(&mutex_);
      if (inbox_.empty()) {
        draining_ = false;
        return;
      }
      next = std::move(inbox_.front());
      inbox_.pop_front();
    }
    Actions actions = next(flow_);
    for (Action& action : actions) {
      std::visit([this](auto& one) { Do(one); }, action);
    }
  }
}

void RequestDriver::Do(Submit& submit) {
  auto request = std::make_shared<DispatchRequest>(std::move(submit.request));
  // The choices that are answered at once. Shared: others are long after this function.
  struct AtOnce {
    std::atomic<bool> placed{false}, failed{false};
  };
  const auto at_once = std::make_shared<AtOnce>();
  request->result = [self = shared_from_this(), at_once](int choice, absl::StatusOr<Placement> result) {
    (result.ok() ? at_once->placed : at_once->failed).store(true, std::memory_order_relaxed);
    auto placement = std::make_shared<absl::StatusOr<Placement>>(std::move(result));
    self->Post(
        [choice, placement](RequestFlow& flow) { return flow.OnPlaced(choice, std::move(*placement)); });
  };
  if (flow_.tells_progress()) {
    request->waits = [self = shared_from_this()](int choice, const Waiting& waiting) {
      self->Post([choice, waiting](RequestFlow& flow) { return flow.OnWaits(choice, waiting); });
    };
  }
  request_ = std::move(request);
  calls_.resize(request_->choices);
  dispatcher_ = context_.fleets[flow_.model()->fleet].dispatcher;
  auto entries = dispatcher_->Submit(request_);
  if (entries.ok()) {
    entries_ = *std::move(entries);
    account_ = entries_.front();
    if (!at_once->failed.load(std::memory_order_relaxed)) {
      client_->Admitted(flow_.request_id(), /*waits=*/!at_once->placed.load(std::memory_order_relaxed));
    }
  } else {
    Post([status = entries.status()](RequestFlow& flow) { return flow.OnNotAdmitted(status); });
  }
}

void RequestDriver::Do(Requeue& requeue) {
  dispatcher_->Requeue(entries_[requeue.choice], request_, requeue.choice, std::move(requeue.avoid),
                       requeue.begun);
}

void RequestDriver::Do(Judge& judge) {
  const int choice = judge.choice;
  // Nothing else counts a request whose prompt is refused: without this, a tenant could ask for verdicts
  // without end.
  if (choice == Judge::kPrompt && !judgements_.contains(choice)) {
    Dispatcher& dispatcher = *context_.fleets[flow_.model()->fleet].dispatcher;
    if (absl::Status status = dispatcher.AdmitCheapCall(tenant_->id); !status.ok()) {
      Post([status](RequestFlow& flow) { return flow.OnNotAdmitted(status); });
      return;
    }
  }
  judgements_[choice] = flow_.moderator()->Judge(
      std::move(judge.passage), *tenant_, judge.deadline, judge.trace,
      [self = shared_from_this(), choice](absl::StatusOr<moderation::Verdict> verdict) {
        auto held = std::make_shared<absl::StatusOr<moderation::Verdict>>(std::move(verdict));
        self->Post([choice, held](RequestFlow& flow) { return flow.OnVerdict(choice, std::move(*held)); });
      });
}

void RequestDriver::Do(StopJudging&) {
  for (const auto& [choice, judgement] : judgements_) judgement->Cancel();
  judgements_.clear();
}

void RequestDriver::Do(Withdraw& withdraw) {
  if (withdraw.choice >= 0) {
    if (entries_.empty()) return;  // it was not admitted
    dispatcher_->Withdraw(entries_[withdraw.choice]);
    return;
  }
  for (admission::EntryId entry : entries_) dispatcher_->Withdraw(entry);
  entries_.clear();
  request_ = nullptr;
}

void RequestDriver::Do(Dial& dial) {
  const int choice = dial.choice, attempt = dial.attempt;
  calls_[choice] = context_.decode->Call(
      *dial.worker, std::move(dial.request), deadline_, dial.trace,
      {.event =
           [self = shared_from_this(), choice, attempt](baton::fleet::v1::DecodeEvent event) {
             auto held = std::make_shared<baton::fleet::v1::DecodeEvent>(std::move(event));
             self->Post([choice, attempt, held](RequestFlow& flow) {
               return flow.OnDecodeEvent(choice, attempt, std::move(*held));
             });
           },
       .done =
           [self = shared_from_this(), choice, attempt, worker = dial.worker](absl::Status status) {
             // Its address is not for clients.
             if (absl::IsUnavailable(status) || absl::IsUnknown(status)) {
               spdlog::info("request {}: decode worker {} at {}: {}", self->flow_.request_id(),
                            worker->identity().id, worker->identity().address, std::string(status.message()));
             }
             self->Post([choice, attempt, status](RequestFlow& flow) {
               return flow.OnDecodeEnd(choice, attempt, status);
             });
           }});
}

void RequestDriver::Do(ReadNext& next) { calls_[next.choice]->Next(); }

void RequestDriver::Do(HangUp& hang_up) { calls_[hang_up.choice]->Cancel(); }

void RequestDriver::Do(Write& write) {
  if (held_ == nullptr) OnWriting();
  client_->Write(write.response, write.more);
}

void RequestDriver::Do(WriteLast& last) {
  Settle(last.used);
  if (held_ == nullptr) OnWriting();
  FinishClient(absl::OkStatus(), std::move(last.response));
}

void RequestDriver::Do(Break& break_off) { client_->Abort(break_off.status); }

void RequestDriver::Do(Finish& finish) {
  Settle(finish.used);
  FinishClient(finish.status, std::nullopt);
}

void RequestDriver::FinishClient(const absl::Status& status, std::optional<v1::GenerateResponse> last) {
  // Not the status's words, which may quote the request.
  spdlog::debug("request {}, trace {}: {} ended with {}", flow_.request_id(), flow_.trace().TraceIdText(),
                method_, absl::StatusCodeToString(status.code()));
  auto end = std::make_shared<End>(
      End{rpc::WithRequestId(status, flow_.request_id()), std::move(last), Usage(), std::nullopt});
  billing::UsageRecord record;
  if (context_.ledger != nullptr) record = RecordOf(status.code());
  if (held_ != nullptr && !status.ok()) {
    const bool counted = flow_.account().counted();
    end->remains = HeldAnswer::Remains{
        .begun = {}, .unsent = flow_.TakeUnsent(), .charged = counted ? flow_.account().Total() : charged_};
    end->remains->begun = flow_.TakeBegun();
  }
  const auto tell = [end, client = client_, held = held_] {
    if (end->remains.has_value()) held->LeaveBehind(*std::exchange(end->remains, std::nullopt));
    client->Finish(end->status, end->last.has_value() ? &*end->last : nullptr,
                   end->usage.has_value() ? &*end->usage : nullptr);
  };
  // Strangers, of whom there may be any number, leave no line.
  if (context_.ledger == nullptr || tenant_ == nullptr) return tell();
  if (!record.counted) {
    context_.ledger->Record(std::move(record), [] {});
    return tell();
  }
  context_.ledger->Record(std::move(record), tell);
}

billing::UsageRecord RequestDriver::RecordOf(absl::StatusCode code) const {
  constexpr std::string_view kReason = "FINISH_REASON_";
  billing::UsageRecord record;
  record.ended = absl::Now();
  record.request_id = flow_.request_id();
  record.client_request_id = flow_.client_request_id();
  record.trace_id = flow_.trace().TraceIdText();
  record.method = method_;
  record.tenant = tenant_->name;
  record.key = key_;
  if (flow_.model() != nullptr) record.model = flow_.model()->name;
  record.build = flow_.build();
  record.code = code;
  const RequestFlow::Outcome& outcome = flow_.outcome();
  for (v1::FinishReason reason : outcome.reasons) {
    record.finish_reasons.push_back(v1::FinishReason_Name(reason).substr(kReason.size()));
  }
  record.tokens = Uncharged(flow_.account().Total(), charged_);
  record.counted = flow_.account().counted();
  if (flow_.price() != nullptr) {
    record.currency = flow_.price()->currency;
    record.picos = billing::CostOf(*flow_.price(), record.tokens);
  }
  if ((held_ != nullptr || not_held_.has_value()) && record.counted) {
    const HeldAnswer::Name& name = held_ != nullptr ? held_->name() : *not_held_;
    billing::TokenCounts prompt = flow_.account().Total(), rest;
    rest.completion = std::exchange(prompt.completion, 0);
    rest.thinking = std::exchange(prompt.thinking, 0);
    record.answer = billing::UsageRecord::Answer{.name = HeldAnswer::ChargedAs(name, flow_.seed()),
                                                 .tokens = flow_.account().Total(),
                                                 .whole = flow_.whole()};
    if (flow_.price() != nullptr) {
      record.answer->prompt_picos = billing::CostOf(*flow_.price(), prompt);
      record.answer->rest_picos = billing::CostOf(*flow_.price(), rest);
    }
  }
  if (outcome.ttft.has_value()) record.ttft = absl::ToDoubleSeconds(*outcome.ttft);
  record.e2e = absl::ToDoubleSeconds(context_.clock->Now() - flow_.arrival());
  if (outcome.moderation.has_value()) {
    record.moderation = billing::UsageRecord::Moderation{.flagged = outcome.moderation->flagged(),
                                                         .input = outcome.moderation->input(),
                                                         .unavailable = outcome.moderation->unavailable(),
                                                         .categories = {},
                                                         .tokens = outcome.moderation_tokens};
    for (const v1::ModerationCategory& category : outcome.moderation->categories()) {
      record.moderation->categories.push_back(category.name());
    }
  }
  record.decode_worker = outcome.decode_worker;
  record.prefill_worker = outcome.prefill_worker;
  record.migrations = outcome.migrations;
  record.removed_context_tokens = flow_.context_report().removed_tokens();
  record.clamped_max_tokens = flow_.context_report().clamped_max_tokens();
  return record;
}

std::optional<v1::RequestUsage> RequestDriver::Usage() const {
  if (!flow_.account().counted()) return std::nullopt;
  v1::RequestUsage usage;
  SetUsage(flow_.account().Total(), usage.mutable_usage());
  usage.mutable_usage()->set_moderation_tokens(static_cast<uint32_t>(flow_.outcome().moderation_tokens));
  usage.mutable_usage()->set_approximate_reused_tokens(flow_.outcome().approximate_reused_tokens);
  if (flow_.price() != nullptr) *usage.mutable_cost() = CostMessage(*flow_.price(), flow_.account().Total());
  return usage;
}

void RequestDriver::Settle(const admission::Meter::Use& used) {
  request_ = nullptr;
  admission::Meter::Use left = used;
  if (charged_.prompt() > 0) left.prompt_tokens = 0;
  left.output_tokens = std::max<int64_t>(0, left.output_tokens - charged_.completion);
  if (account_.has_value()) dispatcher_->Settle(*account_, left);
  account_.reset();
}

void RequestDriver::OnWritten(bool ok) {
  writing_since_.store(0, std::memory_order_relaxed);
  Post([this, ok](RequestFlow& flow) -> Actions {
    if (reader_ == nullptr) return flow.OnWritten(ok);
    held_->OnWritten(reader_, ok);
    return {};
  });
}

void RequestDriver::OnCancelled() {
  Post([this](RequestFlow& flow) -> Actions {
    if (reader_ != nullptr) {
      held_->Leave(reader_, EndsByDeadline(context_.clock->Now(), deadline_)
                                ? absl::DeadlineExceededError("the deadline passed")
                                : absl::CancelledError("the client went away"));
      return {};
    }
    cancelled_.store(true, std::memory_order_relaxed);
    return flow.OnCancelled();
  });
}

std::function<void()> RequestDriver::IfStalled(absl::Time now) {
  // A thread that sees a write also sees the driver's construction.
  const int64_t since = writing_since_.load(std::memory_order_acquire);
  if (since == 0 || now - absl::FromUnixNanos(since) < context_.client_stall) return nullptr;
  std::shared_ptr<RequestDriver> self = weak_from_this().lock();
  if (self == nullptr) return nullptr;
  return [self, since] {
    self->Post([driver = self.get(), since](RequestFlow& flow) -> Actions {
      if (driver->reader_ == nullptr) return flow.OnMaybeStalled();
      if (driver->writing_since_.load(std::memory_order_relaxed) == since) {
        driver->context_.probe->ClientStalled();
        driver->held_->BreakOff(driver->reader_, StalledError(driver->context_.client_stall));
      }
      return {};
    });
  };
}

std::function<void()> RequestDriver::AtDeadline() {
  std::shared_ptr<RequestDriver> self = weak_from_this().lock();
  if (self == nullptr) return nullptr;
  return [self] { self->OnCancelled(); };
}

std::function<void()> RequestDriver::AtDrain() {
  std::shared_ptr<RequestDriver> self = weak_from_this().lock();
  if (self == nullptr) return nullptr;
  return [self] {
    self->cancelled_.store(true, std::memory_order_relaxed);
    self->Post([driver = self.get()](RequestFlow& flow) -> Actions {
      if (driver->reader_ == nullptr || driver->held_->Computes(driver->reader_)) return flow.OnDrain();
      driver->held_->Leave(driver->reader_, DrainingError());
      return {};
    });
  };
}

}  // namespace baton::router
