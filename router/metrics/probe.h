// Probe: the router's metrics, as verbs: of one fleet of workers and the requests that they serve. Routers
// with several fleets have one for each, told apart by the label `model`; what is counted of requests
// whatever their model (how they ended, those that were denied, clients that stalled) has no such label, and
// all probes of a router count it together. Owned by ModelWorkers (or a test), outlives every request. Any
// thread. It never sees a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "router/admission/probe.h"
#include "router/index/hot_prefixes.h"
#include "router/index/prefix_index.h"
#include "router/metrics/vllm_metrics.h"
#include "router/metrics/worker_hits.h"

namespace baton::router {

// The six phases of TTFT.
struct PhaseSeconds {
  double admit = 0, decode_queue = 0, prefill_queue = 0, prefill = 0, transfer = 0, first_token = 0;
  double Sum() const { return admit + decode_queue + prefill_queue + prefill + transfer + first_token; }
};

// Limits that an answer must keep to count as goodput.
struct Slo {
  double ttft_seconds = 2;
  double tpot_seconds = 0.05;
};

class Probe {
 public:
  // `model` empty: no such label.
  explicit Probe(telemetry::Metrics& all, Slo slo = {}, const std::string& model = "");

  // A generation request came in, and how it ended.
  void RequestCame();
  void RequestEnded(absl::StatusCode outcome, absl::Duration e2e);
  void PromptTokens(int64_t tokens) { prompt_tokens_.Increment(static_cast<double>(tokens)); }
  // A worker accepted a request, which this build answers.
  void AnsweredBy(const std::string& build);
  // Control tokens in a client's text that were encoded as characters.
  void Neutralised(int64_t tokens) { neutralised_.Increment(static_cast<double>(tokens)); }
  // A conversation was too long for the context: about so many tokens of it were left out, or its answer was
  // limited to so many. 0: that was not done.
  void MadeToFit(int64_t removed_tokens, int64_t clamped_max_tokens);
  void AnswerTokens(int64_t tokens) { answer_tokens_.Increment(static_cast<double>(tokens)); }
  // The first token of a request, counted from its arrival.
  void FirstToken(absl::Duration ttft);
  // `gap` passed before a delta of `tokens` tokens that was not the first.
  void MoreTokens(absl::Duration gap, int64_t tokens);
  // A finished choice: what its TTFT was made of, and its pace (absent: one token).
  void Phases(const PhaseSeconds& phases);
  void Pace(double seconds_per_token);
  // Both of them against the SLO.
  void Judge(double ttft_seconds, std::optional<double> tpot_seconds);

  // A call that authentication refused.
  void Denied(const std::string& reason);
  void Queued(int64_t count, int64_t bytes);
  // The counter of placements: to be looked up once, not for each of them.
  prometheus::Counter& Placements(const std::string& policy, const std::string& reason);
  prometheus::Counter& FetchesNotPlanned(const std::string& why);
  // A placement: prompt tokens, and those that the chosen workers were expected to hold; at the end, those
  // that they held: on the decode worker, and more on the prefill worker.
  void Predicted(int64_t prompt, int64_t decode, int64_t prefill);
  void Cached(int64_t decode, int64_t prefill);
  // The same by worker.
  WorkerHits& worker_hits() { return worker_hits_; }
  // A session's prompt lacked so many tokens that could have been expected in the cache, for this reason.
  void CacheMissed(const std::string& reason, int64_t tokens);
  void Index(const index::PrefixIndex::Stats& stats);
  // The hottest first; at most kHotPrefixes of them are shown.
  static constexpr size_t kHotPrefixes = 8;
  void HotPrefixes(const std::vector<index::HotPrefixes::Hot>& top);
  void Booked(int delta) { bookings_.Increment(delta); }
  // A decode worker had no blocks, or was lost, before it accepted; or was lost with tokens already sent.
  void WorkerRefused() { refused_.Increment(); }
  void WorkerLost(bool accepted) { (accepted ? lost_running_ : lost_before_).Increment(); }

  // A call was over before its message was parsed, rendered and tokenized; the rest of that was not done.
  void PreparationDropped() { preparations_dropped_.Increment(); }

  // A client stopped reading, and its request was ended.
  void ClientStalled() { clients_stalled_.Increment(); }

  // By tenant.
  admission::Probe& admission() { return admission_; }

  // From now on the fleet's load is shown under vLLM's names too, as that of this model.
  void NameAsVllm(const std::string& model);
  void Load(const FleetLoad& load);

  void Workers(int decode, int prefill);
  void Draining() { draining_.Set(1); }
  void WatchRestarted(const std::string& reason);
  void FingerprintDiffers(const std::string& address, const std::string& field);
  // The worker at this address is left out for this difference now, or is so no more.
  void LeftOut(const std::string& address, const std::string& field, bool left_out);

 private:
  telemetry::Metrics all_;      // without the label
  telemetry::Metrics metrics_;  // with it
  const Slo slo_;
  prometheus::Counter& answered_;  // those that ended well
  prometheus::Gauge& running_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& neutralised_;
  prometheus::Counter& answer_tokens_;
  prometheus::Counter& overflow_removed_;
  prometheus::Counter& overflow_clamped_;
  prometheus::Counter& removed_tokens_;
  prometheus::Histogram& ttft_;
  prometheus::Histogram& tpot_;
  prometheus::Histogram& itl_;
  prometheus::Counter& slo_met_;
  prometheus::Counter& slo_missed_;
  prometheus::Counter& over_ttft_;
  prometheus::Counter& over_tpot_;
  prometheus::Histogram& e2e_;
  prometheus::Histogram& admit_;
  prometheus::Histogram& decode_queue_;
  prometheus::Histogram& prefill_queue_;
  prometheus::Histogram& prefill_;
  prometheus::Histogram& transfer_;
  prometheus::Histogram& first_token_;
  prometheus::Gauge& queue_depth_;
  prometheus::Gauge& queue_bytes_;
  prometheus::Gauge& bookings_;
  prometheus::Counter& refused_;
  prometheus::Counter& lost_before_;
  prometheus::Counter& lost_running_;
  prometheus::Counter& clients_stalled_;
  prometheus::Counter& preparations_dropped_;
  prometheus::Counter& placed_tokens_;
  prometheus::Counter& predicted_decode_;
  prometheus::Counter& predicted_prefill_;
  prometheus::Counter& cached_decode_;
  prometheus::Counter& cached_prefill_;
  prometheus::Gauge& index_pairs_;
  prometheus::Gauge& index_blocks_;
  prometheus::Gauge& index_bytes_;
  prometheus::Gauge& index_speculative_;
  prometheus::Gauge& index_evicted_;
  struct HotPrefix {
    prometheus::Gauge* rate;
    prometheus::Gauge* tokens;
    prometheus::Gauge* holders;
  };
  std::vector<HotPrefix> hot_prefixes_;  // by rank
  prometheus::Gauge& decode_workers_;
  prometheus::Gauge& prefill_workers_;
  prometheus::Gauge& draining_;
  admission::Probe admission_;
  WorkerHits worker_hits_;
  std::optional<VllmMetrics> vllm_;
};

}  // namespace baton::router
