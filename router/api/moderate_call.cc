#include "router/api/moderate_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "common/rpc/trace_metadata.h"
#include "router/api/call_name.h"
#include "router/api/classifiers.h"
#include "router/api/grpc_credentials.h"
#include "router/api/usage.h"
#include "router/api/validation.h"
#include "router/api/wire.h"
#include "router/billing/ledger.h"

namespace baton::router {

absl::Status CheckModerate(const v1::ModerateRequest& request) {
  if (request.texts().empty() || request.texts_size() > kMaxModeratedTexts) {
    return absl::InvalidArgumentError(
        fmt::format("texts: {}; give 1 to {}", request.texts_size(), kMaxModeratedTexts));
  }
  size_t bytes = 0;
  for (int i = 0; i < request.texts_size(); ++i) {
    if (request.texts(i).empty()) {
      return absl::InvalidArgumentError(fmt::format("texts[{}]: empty; there is nothing to judge", i));
    }
    bytes += request.texts(i).size();
  }
  if (bytes <= kMaxModeratedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("texts: {} bytes together, at most {} are taken", bytes, kMaxModeratedBytes));
}

ModerateCall::ModerateCall(const CallContext& context, grpc::CallbackServerContext& server_context,
                           Caller caller, grpc::ByteBuffer& response)
    : context_(context),
      arrival_(context.clock->Now()),
      deadline_(DeadlineOf(server_context, *context.clock)),
      trace_(rpc::TraceOf(server_context)),
      server_context_(server_context),
      name_(NameCall(server_context)),
      response_(response),
      caller_(std::move(caller)) {}

grpc::ServerUnaryReactor* ModerateCall::Start(const CallContext& context,
                                              grpc::CallbackServerContext* server_context,
                                              absl::StatusOr<Caller> caller, const grpc::ByteBuffer& bytes,
                                              grpc::ByteBuffer* response) {
  absl::Status begun = caller.status();
  auto call = std::shared_ptr<ModerateCall>(
      new ModerateCall(context, *server_context, caller.ok() ? *std::move(caller) : Caller(), *response));
  call->self_ = call;
  call->alive_.emplace(*context.live, *call, call->deadline_);
  if (begun.ok()) begun = call->Begin(bytes);
  if (!begun.ok()) call->End(begun);
  return call.get();
}

absl::Status ModerateCall::Begin(const grpc::ByteBuffer& bytes) {
  BATON_RETURN_IF_ERROR(context_.fleets.front().dispatcher->AdmitCheapCall(caller_.tenant->id));
  v1::ModerateRequest request;
  BATON_RETURN_IF_ERROR(ParseMessage(bytes, &request, kMaxShortMessage));
  BATON_RETURN_IF_ERROR(CheckModerate(request));
  BATON_ASSIGN_OR_RETURN(moderator_, context_.classifiers->Find(request.model(), "model"));
  timeout_ = context_.classifiers->RulesOf(*caller_.tenant).timeout;
  {
    absl::MutexLock lock(&mutex_);
    answer_.set_model(moderator_->name());
    left_ = request.texts_size();
    for (const std::string& text : request.texts()) {
      answer_.add_results();
      Text& added = texts_.emplace_back();
      added.gate = std::make_unique<moderation::Gate>(false, moderator_->room());
      added.gate->AddText(text);
      added.gate->End();
    }
  }
  for (size_t i = 0; i < static_cast<size_t>(request.texts_size()); ++i) Next(i);
  return absl::OkStatus();
}

void ModerateCall::Next(size_t text) {
  std::optional<std::string> piece;
  bool last = false;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    piece = texts_[text].gate->Next();
    if (!piece.has_value()) last = --left_ == 0;
  }
  if (!piece.has_value()) {
    if (last) End(absl::OkStatus());
    return;
  }
  auto judgement =
      moderator_->Judge({.text = *std::move(piece), .answer = false}, *caller_.tenant,
                        std::min(deadline_, context_.clock->Now() + timeout_), trace_,
                        [self = shared_from_this(), text](absl::StatusOr<moderation::Verdict> verdict) {
                          self->OnVerdict(text, std::move(verdict));
                        });
  {
    absl::MutexLock lock(&mutex_);
    // The verdict may have come, and the next be on its way: that one's judgement may stay or be replaced by
    // this one, which then only is not cancelled.
    if (!ended_) {
      texts_[text].judgement = std::move(judgement);
      return;
    }
  }
  judgement->Cancel();
}

void ModerateCall::OnVerdict(size_t text, absl::StatusOr<moderation::Verdict> verdict) {
  if (!verdict.ok()) {
    {
      absl::MutexLock lock(&mutex_);
      failed_ = failed_ || !ended_;
    }
    End(rpc::WithReason(
        absl::UnavailableError(fmt::format("the classifier {} gave no verdict; retry ({})",
                                           moderator_->name(), std::string(verdict.status().message()))),
        v1::REASON_CLASSIFIER_UNAVAILABLE));
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    answer_.set_moderation_tokens(answer_.moderation_tokens() + static_cast<uint32_t>(verdict->tokens));
    AddVerdict(*verdict, answer_.mutable_results(static_cast<int>(text)));
    texts_[text].gate->Passed();
  }
  Next(text);
}

std::function<void()> ModerateCall::AtDeadline() {
  std::shared_ptr<ModerateCall> self = weak_from_this().lock();
  if (self == nullptr) return nullptr;
  return [self] { self->End(absl::DeadlineExceededError("the deadline passed")); };
}

std::function<void()> ModerateCall::AtDrain() {
  std::shared_ptr<ModerateCall> self = weak_from_this().lock();
  if (self == nullptr) return nullptr;
  return [self] { self->End(DrainingError()); };
}

void ModerateCall::Record(absl::StatusCode code, const v1::ModerateResponse& answer, bool failed) const {
  // Strangers, of whom there may be any number, leave no line.
  if (context_.ledger == nullptr || caller_.tenant == nullptr) return;
  billing::UsageRecord record;
  record.ended = absl::Now();
  record.request_id = name_.id;
  record.client_request_id = name_.client_id;
  record.trace_id = trace_.TraceIdText();
  record.method = "Moderate";
  record.tenant = caller_.tenant->name;
  record.key = caller_.key;
  record.model = answer.model();
  record.code = code;
  record.e2e = absl::ToDoubleSeconds(context_.clock->Now() - arrival_);
  billing::UsageRecord::Moderation found{.unavailable = failed, .tokens = answer.moderation_tokens()};
  bool judged = failed;
  std::set<std::string> categories;
  for (const v1::ModerationResult& result : answer.results()) {
    judged = judged || result.verdicts() > 0;
    if (!result.flagged()) continue;
    found.flagged = true;
    for (const v1::ModerationCategory& category : result.categories()) categories.insert(category.name());
  }
  found.categories.assign(categories.begin(), categories.end());
  if (judged) record.moderation = std::move(found);
  context_.ledger->Record(std::move(record), [] {});
}

void ModerateCall::End(const absl::Status& status) {
  std::vector<Text> texts;
  v1::ModerateResponse answer;
  bool failed = false;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
    texts.swap(texts_);
    if (status.ok()) response_ = SerializeMessage(answer_);
    answer.Swap(&answer_);
    failed = failed_;
  }
  Record(status.code(), answer, failed);
  for (const Text& text : texts) {
    if (text.judgement != nullptr && !status.ok()) text.judgement->Cancel();
  }
  if (status.ok()) Announce(name_, &server_context_);
  Finish(EndOf(rpc::WithRequestId(status, name_.id), &server_context_));
}

}  // namespace baton::router
