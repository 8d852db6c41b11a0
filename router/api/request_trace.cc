#include "router/api/request_trace.h"

#include "common/telemetry/semantic_conventions.h"

namespace baton::router {
namespace {

namespace names = telemetry::names;

constexpr char kService[] = "baton.v1.Inference";

}  // namespace

RequestTrace::RequestTrace(const telemetry::Tracer* tracer, const telemetry::TraceContext& incoming,
                           const Clock& clock, absl::Time arrival, const std::string& request_id,
                           const std::string& client_request_id, std::string_view method)
    : clock_(clock), arrival_(arrival), context_(incoming) {
  if (tracer == nullptr) return;
  context_ = tracer->Continue(incoming);
  spans_ = tracer->Begin(context_, clock, "router.request", telemetry::Span::Kind::kServer, arrival);
  if (spans_ == nullptr) {
    context_ = context_.Child();
    return;
  }
  context_ = spans_->context();
  spans_->whole().attributes = {
      {names::kRpcSystem, "grpc"},
      {names::kRpcService, kService},
      {names::kRpcMethod, std::string(method)},
      {names::kOperation, method.starts_with("Generate") ? "text_completion" : "chat"},
      {names::kProvider, "baton"},
      {names::kResponseId, request_id}};
  if (!client_request_id.empty()) {
    spans_->whole().attributes.emplace_back(names::kClientRequestId, client_request_id);
  }
}

void RequestTrace::Submitted(const Prepared& prepared) {
  if (spans_ == nullptr) return;
  for (int i = 0; i < prepared.choices; ++i) {
    choices_.push_back({.admit = telemetry::NewSpanId(), .waits_since = clock_.Now()});
  }
  auto& attributes = spans_->whole().attributes;
  attributes.emplace_back(names::kRequestModel, prepared.model->name);
  attributes.emplace_back(names::kMaxTokens, int64_t{prepared.request.stop().max_tokens()});
  if (prepared.choices > 1) attributes.emplace_back(names::kChoices, int64_t{prepared.choices});
}

void RequestTrace::Accepted(const std::string& build) {
  if (spans_ != nullptr) spans_->whole().attributes.emplace_back(names::kBuild, build);
}

void RequestTrace::Requeued(int choice) {
  if (spans_ != nullptr) choices_[choice].waits_since = clock_.Now();
}

void RequestTrace::Placed(int choice, int attempt, const std::string& worker, bool begun) {
  if (spans_ == nullptr) return;
  Choice& own = choices_[choice];
  const absl::Time now = clock_.Now();
  if (!begun) own.placed = now;
  // A choice that has begun is placed again because its worker left: it is admitted long since.
  spans_->Add("router.place", own.waits_since, now, begun ? context_.span_id : own.admit).attributes = {
      {names::kChoice, int64_t{choice}}, {names::kAttempt, int64_t{attempt}}, {names::kWorker, worker}};
}

void RequestTrace::Finished(int choice, absl::Time dialed, absl::Time first, double first_token) {
  if (spans_ == nullptr) return;
  choices_[choice].finished = true;
  AddAdmit(choice, dialed);
  spans_->Add("first_token", first - absl::Seconds(first_token), first).attributes = {
      {names::kChoice, int64_t{choice}}};
}

void RequestTrace::Ended(const absl::Status& status, const billing::UsageAccount& account,
                         const std::vector<v1::FinishReason>& reasons) {
  if (spans_ == nullptr) return;
  const absl::Time now = clock_.Now();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& own = choices_[i];
    if (!own.finished) AddAdmit(static_cast<int>(i), own.placed == absl::Time() ? now : own.placed);
  }
  if (choices_.empty()) spans_->Add("router.admit", arrival_, now);  // refused before it had choices
  telemetry::Span& whole = spans_->whole();
  whole.attributes.emplace_back(names::kRpcStatus, static_cast<int64_t>(status.code()));
  if (!status.ok()) {
    // Not its words, which may quote the request.
    whole.error = absl::StatusCodeToString(status.code());
    whole.attributes.emplace_back(names::kErrorType, whole.error);
  }
  if (!reasons.empty()) {
    std::vector<std::string> texts;
    for (const v1::FinishReason reason : reasons) texts.push_back(v1::FinishReason_Name(reason));
    whole.attributes.emplace_back(names::kFinishReasons, std::move(texts));
  }
  if (account.counted()) {
    const billing::TokenCounts total = account.Total();
    whole.attributes.emplace_back(names::kInputTokens, total.prompt());
    whole.attributes.emplace_back(names::kCachedTokens, total.cached());
    whole.attributes.emplace_back(names::kOutputTokens, total.completion);
    if (total.thinking > 0) whole.attributes.emplace_back(names::kThinkingTokens, total.thinking);
  }
  spans_->End(now);
  spans_ = nullptr;
}

void RequestTrace::AddAdmit(int choice, absl::Time end) {
  telemetry::Span& span = spans_->Add("router.admit", arrival_, end);
  span.id = choices_[choice].admit;
  span.attributes = {{names::kChoice, int64_t{choice}}};
}

}  // namespace baton::router
