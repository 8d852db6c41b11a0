#include "prefill_service/probe.h"

namespace baton::prefill_service {
namespace {

prometheus::Counter& Outcome(telemetry::Metrics& metrics, const char* outcome) {
  return metrics.Counter("baton_prefill_requests_total", "Prefill requests that ended, by outcome.",
                         {{"outcome", outcome}});
}

prometheus::Gauge& Blocks(telemetry::Metrics& metrics, const char* state) {
  return metrics.Gauge("baton_kv_blocks", "KV blocks of the pool, by state.", {{"state", state}});
}

}  // namespace

Probe::Probe(telemetry::Metrics& metrics, std::string_view link)
    : queue_seconds_(metrics.Histogram("baton_prefill_queue_seconds",
                                       "Wait of a prompt before its first chunk.", telemetry::TtftBuckets())),
      step_seconds_(metrics.Histogram("baton_prefill_step_seconds", "Duration of one step of the engine.",
                                      telemetry::PerTokenBuckets())),
      computed_tokens_(metrics.Counter("baton_prefill_tokens_total", "Prompt tokens computed.")),
      query_tokens_(
          metrics.Counter("baton_prefix_query_tokens_total", "Prompt tokens looked up in the prefix cache.")),
      hit_tokens_(
          metrics.Counter("baton_prefix_hit_tokens_total", "Prompt tokens found in the prefix cache.")),
      shipped_bytes_(metrics.Counter("baton_kv_shipped_bytes_total", "KV bytes shipped, by link.",
                                     {{"link", std::string(link)}})),
      done_(Outcome(metrics, "ok")),
      cancelled_(Outcome(metrics, "cancelled")),
      failed_(Outcome(metrics, "failed")),
      refused_(Outcome(metrics, "refused")),
      queued_(metrics.Gauge("baton_prefill_queued", "Prompts waiting for their first chunk.")),
      computing_(metrics.Gauge("baton_prefill_computing", "Prompts being computed or shipped.")),
      pending_tokens_(metrics.Gauge("baton_prefill_pending_tokens", "Prompt tokens still to compute.")),
      free_blocks_(Blocks(metrics, "free")),
      held_blocks_(Blocks(metrics, "held")),
      cached_blocks_(Blocks(metrics, "cached")) {}

void Probe::Began(absl::Duration waited, int64_t prompt_tokens, int64_t cached_tokens) {
  queue_seconds_.Observe(absl::ToDoubleSeconds(waited));
  query_tokens_.Increment(static_cast<double>(prompt_tokens));
  hit_tokens_.Increment(static_cast<double>(cached_tokens));
}

void Probe::Stepped(int64_t rows, absl::Duration took) {
  computed_tokens_.Increment(static_cast<double>(rows));
  step_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void Probe::Shipped(int64_t bytes) {
  shipped_bytes_.Increment(static_cast<double>(bytes));
  done_.Increment();
}

void Probe::Cancelled() { cancelled_.Increment(); }
void Probe::Failed() { failed_.Increment(); }
void Probe::Refused() { refused_.Increment(); }

void Probe::Observe(size_t queued, size_t computing, int64_t pending_tokens,
                    const kv::BlockPool::Counts& blocks) {
  queued_.Set(static_cast<double>(queued));
  computing_.Set(static_cast<double>(computing));
  pending_tokens_.Set(static_cast<double>(pending_tokens));
  free_blocks_.Set(static_cast<double>(blocks.free));
  held_blocks_.Set(static_cast<double>(blocks.held));
  cached_blocks_.Set(static_cast<double>(blocks.cached));
}

}  // namespace baton::prefill_service
