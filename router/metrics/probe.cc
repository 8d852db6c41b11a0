#include "router/metrics/probe.h"

#include <algorithm>

namespace baton::router {
namespace {

prometheus::Histogram& Phase(telemetry::Metrics& metrics, const std::string& phase) {
  return metrics.Histogram("baton_ttft_phase_seconds",
                           "What TTFT was made of, by phase; observed when a choice ends",
                           telemetry::TtftBuckets(), {{"phase", phase}});
}

prometheus::Counter& Lost(telemetry::Metrics& metrics, const std::string& when) {
  return metrics.Counter("baton_router_decode_lost_total", "Decode workers lost under a request",
                         {{"when", when}});
}

prometheus::Counter& PredictedTokens(telemetry::Metrics& metrics, const std::string& pool) {
  return metrics.Counter("baton_router_predicted_cached_tokens_total",
                         "Prompt tokens that the chosen worker was expected to hold; prefill: beyond the "
                         "decode worker's",
                         {{"pool", pool}});
}

prometheus::Counter& CachedTokens(telemetry::Metrics& metrics, const std::string& pool) {
  return metrics.Counter("baton_router_cached_tokens_total",
                         "Prompt tokens that the chosen worker held; prefill: beyond the decode worker's",
                         {{"pool", pool}});
}

prometheus::Counter& Answers(telemetry::Metrics& metrics, const std::string& slo) {
  return metrics.Counter("baton_router_answers_total",
                         "Finished answers that kept the SLO in TTFT and TPOT (--slo-ttft, --slo-tpot), and "
                         "those that did not",
                         {{"slo", slo}});
}

prometheus::Counter& OverSlo(telemetry::Metrics& metrics, const std::string& slo) {
  return metrics.Counter("baton_router_over_slo_total",
                         "First tokens later than --slo-ttft, and answers slower per token than --slo-tpot",
                         {{"slo", slo}});
}

// So that rules and dashboards judge by the flags of this process, and by no figure of their own.
void ShowSlo(telemetry::Metrics& metrics, const Slo& slo) {
  const std::string name = "baton_router_slo_seconds";
  const std::string help = "What answers are judged by: --slo-ttft and --slo-tpot";
  metrics.Gauge(name, help, {{"slo", "ttft"}}).Set(slo.ttft_seconds);
  metrics.Gauge(name, help, {{"slo", "tpot"}}).Set(slo.tpot_seconds);
}

prometheus::Counter& Outcomes(telemetry::Metrics& metrics, absl::StatusCode outcome) {
  return metrics.Counter("baton_router_requests_total", "Generation requests by canonical status code",
                         {{"outcome", absl::StatusCodeToString(outcome)}});
}

prometheus::Gauge& Workers(telemetry::Metrics& metrics, const std::string& role) {
  return metrics.Gauge("baton_router_workers", "Workers that placement may use", {{"role", role}});
}

}  // namespace

Probe::Probe(telemetry::Metrics& all, Slo slo, const std::string& model)
    : all_(all),
      metrics_(model.empty() ? all : all.With({{"model", model}})),
      slo_(slo),
      answered_(Outcomes(all_, absl::StatusCode::kOk)),
      running_(all_.Gauge("baton_router_running", "Generation requests inside the router")),
      prompt_tokens_(
          metrics_.Counter("baton_router_prompt_tokens_total", "Prompt tokens of admitted requests")),
      neutralised_(all_.Counter("baton_router_neutralised_control_tokens_total",
                                "Control tokens in clients' text (messages, tools, literal prompts) that "
                                "were encoded as characters")),
      answer_tokens_(
          metrics_.Counter("baton_router_answer_tokens_total", "Tokens received from decode workers")),
      overflow_removed_(
          metrics_.Counter("baton_router_overflow_total",
                           "Conversations that were too long for the context and made to fit, by "
                           "what was done",
                           {{"action", "removed"}})),
      overflow_clamped_(
          metrics_.Counter("baton_router_overflow_total",
                           "Conversations that were too long for the context and made to fit, by "
                           "what was done",
                           {{"action", "clamped"}})),
      removed_tokens_(
          metrics_.Counter("baton_router_overflow_removed_tokens_total",
                           "Tokens, about, that were left out of conversations to make them fit")),
      ttft_(metrics_.Histogram("baton_router_ttft_seconds", "Arrival of a request to its first token",
                               telemetry::TtftBuckets())),
      tpot_(metrics_.Histogram("baton_router_tpot_seconds", "Mean time per output token after the first",
                               telemetry::PerTokenBuckets())),
      itl_(metrics_.Histogram("baton_router_itl_seconds", "Time between consecutive tokens",
                              telemetry::PerTokenBuckets())),
      slo_met_(Answers(metrics_, "met")),
      slo_missed_(Answers(metrics_, "missed")),
      over_ttft_(OverSlo(metrics_, "ttft")),
      over_tpot_(OverSlo(metrics_, "tpot")),
      e2e_(all_.Histogram("baton_router_e2e_seconds", "Arrival of a request to its end",
                          telemetry::EndToEndBuckets())),
      admit_(Phase(metrics_, "admit")),
      decode_queue_(Phase(metrics_, "decode_queue")),
      prefill_queue_(Phase(metrics_, "prefill_queue")),
      prefill_(Phase(metrics_, "prefill")),
      transfer_(Phase(metrics_, "transfer")),
      first_token_(Phase(metrics_, "first_token")),
      queue_depth_(metrics_.Gauge("baton_router_queue_requests", "Choices waiting for a decode worker")),
      queue_bytes_(
          metrics_.Gauge("baton_router_queue_bytes", "Bytes of prompts waiting for a decode worker")),
      bookings_(metrics_.Gauge("baton_router_bookings", "Choices booked on decode workers by this router")),
      refused_(metrics_.Counter("baton_router_decode_refused_total",
                                "Choices that a decode worker refused for lack of blocks")),
      lost_before_(Lost(metrics_, "before_accepted")),
      lost_running_(Lost(metrics_, "running")),
      clients_stalled_(all_.Counter("baton_router_clients_stalled_total",
                                    "Requests ended because their client had stopped reading")),
      preparations_dropped_(all_.Counter(
          "baton_router_preparations_dropped_total",
          "Messages that were not parsed, rendered and tokenized to the end because their call was over")),
      placed_tokens_(metrics_.Counter("baton_router_placed_tokens_total",
                                      "Prompt tokens of placements, retries included")),
      predicted_decode_(PredictedTokens(metrics_, "decode")),
      predicted_prefill_(PredictedTokens(metrics_, "prefill")),
      cached_decode_(CachedTokens(metrics_, "decode")),
      cached_prefill_(CachedTokens(metrics_, "prefill")),
      index_pairs_(metrics_.Gauge("baton_router_index_pairs", "(block, worker) pairs in the prefix index")),
      index_blocks_(metrics_.Gauge("baton_router_index_blocks", "Blocks in the prefix index")),
      index_bytes_(metrics_.Gauge("baton_router_index_bytes", "Memory of the prefix index")),
      index_speculative_(
          metrics_.Gauge("baton_router_index_speculative_pairs",
                         "Speculative pairs: entered at a placement and not confirmed by the worker")),
      index_evicted_(metrics_.Gauge("baton_router_index_evicted_blocks",
                                    "Blocks dropped from the index since the start for lack of memory")),
      decode_workers_(router::Workers(metrics_, "decode")),
      prefill_workers_(router::Workers(metrics_, "prefill")),
      draining_(all_.Gauge("baton_draining", "1: takes no new work")),
      admission_(metrics_),
      worker_hits_(metrics_) {
  ShowSlo(all_, slo);
  for (size_t rank = 1; rank <= kHotPrefixes; ++rank) {
    const telemetry::Metrics::Labels labels{{"rank", std::to_string(rank)}};
    hot_prefixes_.push_back(
        {.rate =
             &metrics_.Gauge("baton_router_hot_prefix_placements_per_second",
                             "Placements of prompts that begin with the prefix of this rank, lately", labels),
         .tokens =
             &metrics_.Gauge("baton_router_hot_prefix_tokens", "Length of the prefix of this rank", labels),
         .holders = &metrics_.Gauge("baton_router_hot_prefix_holders",
                                    "Workers that hold all of the prefix of this rank", labels)});
  }
}

void Probe::FirstToken(absl::Duration ttft) {
  const double seconds = absl::ToDoubleSeconds(ttft);
  ttft_.Observe(seconds);
  if (seconds > slo_.ttft_seconds) over_ttft_.Increment();
}

void Probe::Pace(double seconds_per_token) {
  tpot_.Observe(seconds_per_token);
  if (seconds_per_token > slo_.tpot_seconds) over_tpot_.Increment();
}

void Probe::Judge(double ttft_seconds, std::optional<double> tpot_seconds) {
  const bool met = ttft_seconds <= slo_.ttft_seconds && tpot_seconds.value_or(0) <= slo_.tpot_seconds;
  (met ? slo_met_ : slo_missed_).Increment();
}

void Probe::RequestCame() { running_.Increment(); }

void Probe::RequestEnded(absl::StatusCode outcome, absl::Duration e2e) {
  if (outcome == absl::StatusCode::kOk) {
    answered_.Increment();
    e2e_.Observe(absl::ToDoubleSeconds(e2e));
  } else {
    Outcomes(all_, outcome).Increment();
  }
  running_.Decrement();  // last: who sees it gone finds it counted
}

void Probe::MoreTokens(absl::Duration gap, int64_t tokens) {
  const double each = absl::ToDoubleSeconds(gap) / static_cast<double>(tokens);
  for (int64_t i = 0; i < tokens; ++i) itl_.Observe(each);
}

void Probe::Phases(const PhaseSeconds& phases) {
  admit_.Observe(phases.admit);
  decode_queue_.Observe(phases.decode_queue);
  prefill_queue_.Observe(phases.prefill_queue);
  prefill_.Observe(phases.prefill);
  transfer_.Observe(phases.transfer);
  first_token_.Observe(phases.first_token);
}

void Probe::MadeToFit(int64_t removed_tokens, int64_t clamped_max_tokens) {
  if (removed_tokens > 0) overflow_removed_.Increment();
  if (clamped_max_tokens > 0) overflow_clamped_.Increment();
  removed_tokens_.Increment(static_cast<double>(removed_tokens));
}

void Probe::Denied(const std::string& reason) {
  all_.Counter("baton_router_denied_total", "Calls that authentication refused, by reason",
               {{"reason", reason}})
      .Increment();
}

void Probe::CacheMissed(const std::string& reason, int64_t tokens) {
  metrics_
      .Counter(
          "baton_router_cache_miss_tokens_total",
          "Prompt tokens of sessions that were computed although the cache could have had them, by reason",
          {{"reason", reason}})
      .Increment(static_cast<double>(tokens));
}

void Probe::AnsweredBy(const std::string& build) {
  metrics_
      .Counter("baton_router_accepted_total",
               "Requests that decode workers accepted, by the build that answers", {{"build", build}})
      .Increment();
}

void Probe::Queued(int64_t count, int64_t bytes) {
  queue_depth_.Set(static_cast<double>(count));
  queue_bytes_.Set(static_cast<double>(bytes));
}

prometheus::Counter& Probe::Placements(const std::string& policy, const std::string& reason) {
  return metrics_.Counter("baton_router_placements_total", "Placements by policy and reason",
                          {{"policy", policy}, {"reason", reason}});
}

prometheus::Counter& Probe::FetchesNotPlanned(const std::string& why) {
  return metrics_.Counter(
      "baton_router_fetches_not_planned_total",
      "Placements without a fetch although a peer holds more of the prompt than the worker that computes it",
      {{"why", why}});
}

void Probe::Predicted(int64_t prompt, int64_t decode, int64_t prefill) {
  placed_tokens_.Increment(static_cast<double>(prompt));
  predicted_decode_.Increment(static_cast<double>(decode));
  predicted_prefill_.Increment(static_cast<double>(std::max<int64_t>(0, prefill - decode)));
}

void Probe::Cached(int64_t decode, int64_t prefill) {
  cached_decode_.Increment(static_cast<double>(decode));
  cached_prefill_.Increment(static_cast<double>(prefill));
}

void Probe::Index(const index::PrefixIndex::Stats& stats) {
  index_pairs_.Set(static_cast<double>(stats.pairs));
  index_blocks_.Set(static_cast<double>(stats.blocks));
  index_bytes_.Set(static_cast<double>(stats.bytes));
  index_speculative_.Set(static_cast<double>(stats.speculative));
  index_evicted_.Set(static_cast<double>(stats.evicted_blocks));
}

void Probe::HotPrefixes(const std::vector<index::HotPrefixes::Hot>& top) {
  for (size_t i = 0; i < hot_prefixes_.size(); ++i) {
    const index::HotPrefixes::Hot hot = i < top.size() ? top[i] : index::HotPrefixes::Hot();
    hot_prefixes_[i].rate->Set(hot.per_second);
    hot_prefixes_[i].tokens->Set(static_cast<double>(hot.blocks * kBlockTokens));
    hot_prefixes_[i].holders->Set(static_cast<double>(hot.holders));
  }
}

void Probe::NameAsVllm(const std::string& model) { vllm_.emplace(all_, model); }

void Probe::Load(const FleetLoad& load) {
  if (vllm_.has_value()) vllm_->Show(load);
}

void Probe::Workers(int decode, int prefill) {
  decode_workers_.Set(decode);
  prefill_workers_.Set(prefill);
}

void Probe::WatchRestarted(const std::string& reason) {
  metrics_
      .Counter("baton_router_watch_restarts_total", "Watch streams begun again, by reason",
               {{"reason", reason}})
      .Increment();
}

void Probe::FingerprintDiffers(const std::string& address, const std::string& field) {
  metrics_
      .Counter("baton_router_fingerprint_mismatches_total",
               "Workers left out because their fingerprint, or the router's tokenizer or ends, differ",
               {{"worker", address}, {"field", field}})
      .Increment();
}

void Probe::LeftOut(const std::string& address, const std::string& field, bool left_out) {
  metrics_
      .Gauge(
          "baton_router_worker_left_out",
          "1: the worker is left out now, because its fingerprint, or the router's tokenizer or ends, differ",
          {{"worker", address}, {"field", field}})
      .Set(left_out ? 1 : 0);
}

}  // namespace baton::router
