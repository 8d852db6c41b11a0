#include "decode_service/probe.h"

namespace baton::decode_service {
namespace {

prometheus::Counter& OutcomeCounter(telemetry::Metrics& metrics, const char* outcome) {
  return metrics.Counter("baton_decode_requests_total", "Requests that ended on this worker, by outcome.",
                         {{"outcome", outcome}});
}

prometheus::Counter& HandOffs(telemetry::Metrics& metrics, std::string_view link, const char* outcome) {
  return metrics.Counter("baton_handoffs_total", "Hand-offs from prefill workers, by link and outcome.",
                         {{"link", std::string(link)}, {"outcome", outcome}});
}

prometheus::Gauge& SequencesIn(telemetry::Metrics& metrics, const char* state) {
  return metrics.Gauge("baton_decode_sequences", "Sequences on this worker, by state.", {{"state", state}});
}

prometheus::Gauge& Blocks(telemetry::Metrics& metrics, const char* state) {
  return metrics.Gauge("baton_kv_blocks", "KV blocks of the pool, by state.", {{"state", state}});
}

}  // namespace

Probe::Probe(telemetry::Metrics& metrics, std::string_view link)
    : metrics_(metrics),
      drafts_(metrics),
      ttft_seconds_(metrics.Histogram("baton_decode_ttft_seconds",
                                      "Arrival at the decode worker to its first token.",
                                      telemetry::TtftBuckets())),
      itl_seconds_(metrics.Histogram("baton_decode_itl_seconds", "Time between tokens of a sequence.",
                                     telemetry::PerTokenBuckets())),
      e2e_seconds_(metrics.Histogram("baton_decode_e2e_seconds", "Arrival at the decode worker to the end.",
                                     telemetry::EndToEndBuckets())),
      step_seconds_(metrics.Histogram("baton_decode_step_seconds", "Duration of one step of the engine.",
                                      telemetry::PerTokenBuckets())),
      transfer_seconds_(metrics.Histogram("baton_kv_transfer_seconds",
                                          "Shipping of a prompt's KV that computing did not hide, by link.",
                                          telemetry::TtftBuckets(), {{"link", std::string(link)}})),
      query_tokens_(
          metrics.Counter("baton_prefix_query_tokens_total", "Prompt tokens looked up in the prefix cache.")),
      hit_tokens_(
          metrics.Counter("baton_prefix_hit_tokens_total", "Prompt tokens found in the prefix cache.")),
      received_bytes_(metrics.Counter("baton_kv_received_bytes_total", "KV bytes received, by link.",
                                      {{"link", std::string(link)}})),
      received_blocks_(metrics.Counter("baton_kv_received_blocks_total", "KV blocks received, by link.",
                                       {{"link", std::string(link)}})),
      handoffs_ok_(HandOffs(metrics, link, "ok")),
      handoffs_failed_(HandOffs(metrics, link, "failed")),
      late_writes_(metrics.Counter("baton_late_writes_refused_total",
                                   "KV chunks refused because no valid ticket covers them.")),
      local_tokens_(metrics.Counter("baton_local_prefill_tokens_total",
                                    "Prompt tokens computed by this decode worker itself.")),
      output_tokens_(metrics.Counter("baton_output_tokens_total", "Tokens generated.")),
      preemptions_(metrics.Counter("baton_preemptions_total",
                                   "Sequences that gave up their KV blocks because none were left.")),
      draws_waited_(metrics.Counter("baton_decode_mask_waits_total",
                                    "Tokens that waited for their grammar's mask while the batch went on.")),
      ok_(OutcomeCounter(metrics, "ok")),
      cancelled_(OutcomeCounter(metrics, "cancelled")),
      failed_(OutcomeCounter(metrics, "failed")),
      refused_(OutcomeCounter(metrics, "refused")),
      handing_off_(SequencesIn(metrics, "handoff")),
      prefilling_(SequencesIn(metrics, "prefilling")),
      running_(SequencesIn(metrics, "running")),
      preempted_(SequencesIn(metrics, "preempted")),
      answers_in_time_(
          metrics.Gauge("baton_decode_answers_in_time",
                        "Running sequences up to which a step is expected to meet --slo-tpot; more wait.")),
      free_blocks_(Blocks(metrics, "free")),
      held_blocks_(Blocks(metrics, "held")),
      cached_blocks_(Blocks(metrics, "cached")) {}

void Probe::Admitted(int64_t prompt_tokens, int64_t cached_tokens) {
  query_tokens_.Increment(static_cast<double>(prompt_tokens));
  hit_tokens_.Increment(static_cast<double>(cached_tokens));
}

void Probe::Refused() { refused_.Increment(); }

void Probe::HandedOff(int64_t blocks, int64_t bytes, absl::Duration transfer) {
  handoffs_ok_.Increment();
  received_blocks_.Increment(static_cast<double>(blocks));
  received_bytes_.Increment(static_cast<double>(bytes));
  transfer_seconds_.Observe(absl::ToDoubleSeconds(transfer));
}

void Probe::HandOffFailed() { handoffs_failed_.Increment(); }
void Probe::LateWriteRefused() { late_writes_.Increment(); }
void Probe::DrawWaits() { draws_waited_.Increment(); }
void Probe::Preempted() { preemptions_.Increment(); }

void Probe::Stepped(int64_t decode_rows, int64_t prefill_rows, absl::Duration took) {
  step_seconds_.Observe(absl::ToDoubleSeconds(took));
  local_tokens_.Increment(static_cast<double>(prefill_rows));
}

void Probe::FirstToken(absl::Duration since) {
  output_tokens_.Increment();
  ttft_seconds_.Observe(absl::ToDoubleSeconds(since));
}

void Probe::NextToken(absl::Duration since) {
  output_tokens_.Increment();
  itl_seconds_.Observe(absl::ToDoubleSeconds(since));
}

void Probe::Ended(Outcome outcome, absl::Duration e2e) {
  switch (outcome) {
    case Outcome::kOk:
      ok_.Increment();
      e2e_seconds_.Observe(absl::ToDoubleSeconds(e2e));
      break;
    case Outcome::kCancelled:
      cancelled_.Increment();
      break;
    case Outcome::kFailed:
      failed_.Increment();
      break;
  }
}

void Probe::Warned(std::string_view format, output::Warning kind, int times) {
  const char* const name = kind == output::Warning::kMalformedCall    ? "malformed_call"
                           : kind == output::Warning::kIncompleteCall ? "incomplete_call"
                                                                      : "unknown_tool";
  metrics_
      .Counter("baton_decode_output_warnings_total",
               "Tool calls in answers that could not be told as such, by output format and kind.",
               {{"format", std::string(format)}, {"kind", name}})
      .Increment(times);
}

void Probe::AnswersInTime(int64_t answers) { answers_in_time_.Set(static_cast<double>(answers)); }

void Probe::Observe(const SequenceCounts& sequences, const kv::BlockPool::Counts& blocks) {
  handing_off_.Set(static_cast<double>(sequences.handing_off));
  prefilling_.Set(static_cast<double>(sequences.prefilling));
  running_.Set(static_cast<double>(sequences.running));
  preempted_.Set(static_cast<double>(sequences.preempted));
  free_blocks_.Set(static_cast<double>(blocks.free));
  held_blocks_.Set(static_cast<double>(blocks.held));
  cached_blocks_.Set(static_cast<double>(blocks.cached));
}

}  // namespace baton::decode_service
