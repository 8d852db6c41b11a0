#include "decode_service/answer_report.h"

#include <algorithm>

#include "common/telemetry/semantic_conventions.h"

namespace baton::decode_service {

void AnswerReport::Arrived(absl::Time now, const std::string& decode_worker, int64_t prompt_tokens) {
  arrival_ = now;
  usage_.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens));
  relay_.set_decode_worker(decode_worker);
}

void AnswerReport::Reserved(absl::Time now, int64_t cached_tokens) {
  reserved_ = now;
  usage_.set_decode_cached_tokens(
      static_cast<uint32_t>(std::min<int64_t>(cached_tokens, usage_.prompt_tokens())));
}

void AnswerReport::Marked(std::span<const kv::PrefixLease> leases) {
  for (const kv::PrefixLease& lease : leases) {
    int64_t& marked = lease.lease_class == kv::LeaseClass::k1h ? marked_1h_ : marked_5m_;
    marked = std::max(marked, lease.blocks * kBlockTokens);
  }
}

v1::Usage AnswerReport::PromptUsage() const {
  v1::Usage usage = usage_;
  const int64_t cached = int64_t{usage_.decode_cached_tokens()} + usage_.prefill_cached_tokens();
  usage.set_written_hour_tokens(static_cast<uint32_t>(std::max<int64_t>(0, marked_1h_ - cached)));
  usage.set_written_five_minutes_tokens(
      static_cast<uint32_t>(std::max<int64_t>(0, marked_5m_ - std::max(marked_1h_, cached))));
  return usage;
}

void AnswerReport::Fetched(absl::Time now, const std::string& peer, int64_t tokens, absl::Duration took,
                           int64_t cached_tokens) {
  fetch_ended_ = now;
  // From the disk, and then from a peer.
  fetch_ += absl::ToDoubleSeconds(took);
  if (tokens == 0) return;
  relay_.set_fetched_tokens(relay_.fetched_tokens() + static_cast<uint32_t>(tokens));
  relay_.set_fetched_from(peer);
  relay_.set_fetch_seconds(fetch_);
  usage_.set_decode_cached_tokens(
      static_cast<uint32_t>(std::min<int64_t>(cached_tokens, usage_.prompt_tokens())));
}

void AnswerReport::PrefillStarted(absl::Time now) {
  if (prefill_started_ == absl::Time()) prefill_started_ = now;
}

void AnswerReport::LogitsArrived(absl::Time now, const fleet::v1::PrefillDone& done) {
  if (first_token_sent()) return;
  prompt_ready_ = now;
  const double taken = absl::ToDoubleSeconds(now - prefill_started_);
  prefill_queue_ = fetch_ + done.queue_seconds();
  prefill_ = done.compute_seconds();
  // The time beyond waiting and computing: shipping, the wire, and attempts that failed before.
  transfer_ = std::max(0.0, taken - done.queue_seconds() - done.compute_seconds());
  // The hand-off may be longer than the prompt: resumed tokens are no tokens of the prompt.
  const uint32_t cached = std::min(done.cached_tokens(), usage_.prompt_tokens());
  usage_.set_prefill_cached_tokens(cached - std::min(cached, usage_.decode_cached_tokens()));
  if (done.fetched_tokens() == 0) return;
  relay_.set_fetched_tokens(relay_.fetched_tokens() + done.fetched_tokens());
  relay_.set_fetched_from(done.fetched_from());
  relay_.set_fetch_seconds(done.fetch_seconds());
}

void AnswerReport::Shipped(std::string_view link, int64_t blocks, int64_t bytes) {
  relay_.set_shipped_blocks(relay_.shipped_blocks() + static_cast<uint32_t>(blocks));
  relay_.set_shipped_bytes(relay_.shipped_bytes() + bytes);
  if (blocks > 0) relay_.set_link(std::string(link));
}

void AnswerReport::PromptComputed(absl::Time now) {
  if (first_token_sent()) return;
  // The rest since its reservation it waited: for a fetch, for prompts before it, for running sequences'
  // rows.
  prompt_ready_ = now;
  prefilled_here_ = true;
  const double taken = absl::ToDoubleSeconds(now - reserved_);
  prefill_ = std::min(taken, computed_here_);
  prefill_queue_ = taken - prefill_;
  transfer_ = 0;
}

absl::Duration AnswerReport::TokenSent(absl::Time now, const forecast::StepTotals& totals) {
  const absl::Time before = first_token_sent() ? last_token_ : arrival_;
  if (!first_token_sent()) {
    first_token_ = now;
    first_totals_ = totals;
  }
  last_token_ = now;
  last_totals_ = totals;
  return now - before;
}

fleet::v1::Opening AnswerReport::Opening() const {
  fleet::v1::Opening opening;
  ReportPhases(*opening.mutable_timing());
  *opening.mutable_usage() = PromptUsage();
  return opening;
}

v1::Finished AnswerReport::Finished(uint32_t choice, const AnswerText::End& end, int64_t generated,
                                    int64_t steps) {
  v1::Finished finished;
  finished.set_choice(choice);
  finished.set_reason(end.reason);
  finished.set_stop_match(end.stop_match);
  if (end.stop_token.has_value()) finished.set_stop_token_id(end.stop_token->value());
  usage_.set_completion_tokens(static_cast<uint32_t>(generated));
  *finished.mutable_usage() = PromptUsage();
  if (relay_.link().empty()) relay_.set_link("local");
  *finished.mutable_relay() = relay_;
  v1::Timing& timing = *finished.mutable_timing();
  ReportPhases(timing);
  if (!first_token_sent()) return finished;
  const double ttft = absl::ToDoubleSeconds(first_token_ - arrival_);
  timing.set_first_token_seconds(std::max(0.0, ttft - timing.decode_queue_seconds() -
                                                   timing.prefill_queue_seconds() - timing.prefill_seconds() -
                                                   timing.transfer_seconds()));
  timing.set_ttft_seconds(ttft);
  if (steps > 0) {
    timing.set_tpot_seconds(absl::ToDoubleSeconds(last_token_ - first_token_) / static_cast<double>(steps));
  }
  timing.set_e2e_seconds(absl::ToDoubleSeconds(last_token_ - arrival_));
  return finished;
}

std::optional<fleet::v1::StepMeans> AnswerReport::steps() const {
  const auto means = last_totals_.MeansSince(first_totals_);
  if (!means.has_value()) return std::nullopt;
  fleet::v1::StepMeans told;
  told.set_seconds(means->seconds);
  told.set_answers(means->answers);
  told.set_context_tokens(means->context);
  return told;
}

void AnswerReport::AddSpans(std::string_view failure, telemetry::RequestSpans& spans) const {
  namespace names = telemetry::names;
  telemetry::Span& whole = spans.whole();
  whole.error = failure;
  whole.attributes.emplace_back(names::kWorker, relay_.decode_worker());
  if (relay_.failovers() > 0) whole.attributes.emplace_back(names::kFailovers, int64_t{relay_.failovers()});
  if (relay_.preemptions() > 0) {
    whole.attributes.emplace_back(names::kPreemptions, int64_t{relay_.preemptions()});
  }
  if (reserved_ == absl::Time()) return;  // refused
  spans.Add("decode.queue", arrival_, reserved_);
  if (fetch_ended_ != absl::Time()) {
    spans.Add("fetch", fetch_ended_ - absl::Seconds(fetch_), fetch_ended_).attributes = {
        {names::kWorker, relay_.fetched_from()}, {names::kTokens, int64_t{relay_.fetched_tokens()}}};
  }
  if (prompt_ready_ != absl::Time() && prefilled_here_) {
    // Its rows were computed in between others': the time that they took counts as the end of the wait.
    const absl::Time computed_from = prompt_ready_ - absl::Seconds(prefill_);
    const telemetry::SpanId prefill = spans.Add("prefill", reserved_, prompt_ready_).id;
    spans.Add("prefill.queue", reserved_, computed_from, prefill);
    spans.Add("prefill.compute", computed_from, prompt_ready_, prefill);
  } else if (prompt_ready_ != absl::Time()) {
    spans.Add("transfer", prompt_ready_ - absl::Seconds(transfer_), prompt_ready_).attributes = {
        {names::kLink, relay_.link()},
        {names::kBlocks, int64_t{relay_.shipped_blocks()}},
        {names::kBytes, static_cast<int64_t>(relay_.shipped_bytes())}};
  }
  if (first_token_sent()) spans.Add("decode", first_token_, last_token_);
}

void AnswerReport::ReportPhases(v1::Timing& timing) const {
  timing.set_decode_queue_seconds(absl::ToDoubleSeconds(reserved_ - arrival_));
  timing.set_prefill_queue_seconds(prefill_queue_);
  timing.set_prefill_seconds(prefill_);
  timing.set_transfer_seconds(transfer_);
}

}  // namespace baton::decode_service
