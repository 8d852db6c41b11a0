// PrefixAffinity: the placement that is predicted to cost the fewest seconds, of this request and of others.
// README.md derives the cost. Per worker it learns what a prefill takes, per decode worker what a step takes;
// a worker begins with what it says of itself, or as an average one.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "protocol/forecast/linear_fit.h"
#include "protocol/forecast/prefill_forecast.h"
#include "router/placement/policy.h"
#include "router/placement/ship_forecast.h"
#include "router/placement/worker_costs.h"

namespace baton::router::placement {

class PrefixAffinity final : public Policy {
 public:
  struct Options {
    // Weights of the cost's parts, against a second of this request's TTFT. README.md derives them.
    // A second of compute on a prefill worker, for each request that waits there.
    double congestion = 2;
    // A second of decode steps of the answer.
    double decode_weight = 0.1;
    // A second by which a local prefill holds up one running answer that is at its TPOT target.
    double stream_weight = 3;
    // A second of compute whose blocks the worker did not hold: they displace other blocks.
    double displacement = 0.3;
    // A second of local prefill: its blocks stay on a decode worker, where later prompts do not find them.
    double lost_reuse = 0.6;
    // Cost of a transfer before one was observed: seconds, and seconds per token.
    double transfer_base = 3e-3;
    double transfer_token = 6e-6;
    // Targets by which prefill workers order their queues.
    forecast::QueueTargets targets = forecast::QueueTargets::For(forecast::kDefaultSloTtft);
    // Seconds that decode workers keep a step with rows of prompts within, while answers run.
    double slo_tpot = forecast::kDefaultSloTpot;
  };
  PrefixAffinity(Options options, uint64_t seed);
  std::string_view name() const override { return "prefix_affinity"; }
  Selection Select(const Request& request, const Pools& pools) override;
  void Observe(const Outcome& outcome) override;
  void Introduce(WorkerSlot slot, const forecast::StepCost& cost) override;
  void OnWorkerLeft(WorkerSlot slot, Incarnation incarnation) override;
  void OnWorkerBack(WorkerSlot slot, Incarnation incarnation) override;
  void OnSlotFreed(WorkerSlot slot) override;

 private:
  // One way to prefill a request: on which worker, with how much of the prefix fetched, and at what cost.
  struct Candidate {
    size_t worker = 0;
    int64_t fetch_blocks = 0;
    int64_t cached_tokens = 0;
    absl::Time due;
    Prediction predicted;
    double cost = 0;
    uint64_t tie = 0;
  };

  // Returns whether the worker was observed or introduced.
  bool Knows(WorkerSlot slot) const { return prefills_.Knows(slot) || steps_.Knows(slot); }
  double PrefillSeconds(WorkerSlot slot, int64_t uncached, int64_t cached) const;
  // On the mean worker, of a prompt of which nothing is cached.
  double AveragePrefillSeconds(int64_t tokens) const;
  double StepSeconds(WorkerSlot slot, double answers, double context) const;
  double Transfer(int64_t tokens) const;
  size_t SelectDecode(const Request& request, const Pools& pools, uint64_t tie_key) const;
  double DecodeCost(const Request& request, const WorkerState& worker, Workers prefill) const;
  double BlockWait(const Request& request, const WorkerState& worker, double lifetime) const;
  // Seconds that it takes to compute again what is leased on the worker and is evicted if it takes the
  // request, with an answer of so many tokens.
  double BrokenLeases(const Request& request, const WorkerState& worker, double answer_tokens) const;
  // Seconds until a prompt whose virtual deadline is `due` would begin on the worker.
  double Wait(const WorkerState& worker, absl::Time due, absl::Time now) const;
  // The prediction for a prefill on the decode worker itself, which holds or fetches `blocks` leading blocks
  // of the prompt: there is no queue but its own and no transfer, and every answer that runs there is held
  // up.
  // `from_disk`: what it lacks of the blocks comes from its disk, otherwise from a peer.
  Prediction Local(const Request& request, const WorkerState& decoder, int64_t blocks,
                   bool from_disk = false) const;
  double LocalCost(const Prediction& local) const;
  // `missing`: tokens whose KV the decode worker lacks.
  Candidate Score(const Request& request, const Pools& pools, size_t at, int64_t fetchable,
                  const ShipForecast& ships, int64_t missing) const;

  // The least loaded worker that has confirmed `blocks` leading blocks of the prompt: in the link domain of
  // the one that fetches, else anywhere.
  std::optional<WorkerSlot> Peer(const Pools& pools, int64_t blocks, const WorkerState& fetcher,
                                 uint64_t tie_key) const;
  static void TakeBest(Workers prefill, std::vector<Candidate>& candidates, Selection& selection);

  // The present virtual deadline of a booked prompt that takes `seconds`.
  absl::Time DueNow(const Booked& booked, double seconds, absl::Time now) const;

  const Options options_;
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
  // Entries of workers that left; the oldest is dropped first.
  static constexpr size_t kMaxKept = 1024;

  WorkerCosts<PrefillFit> prefills_;
  WorkerCosts<StepFit> steps_;
  struct Kept {
    Incarnation incarnation;
    std::optional<WorkerCosts<PrefillFit>::Entry> prefill;
    std::optional<WorkerCosts<StepFit>::Entry> step;
  };
  std::deque<Kept> kept_;
  forecast::LinearFit<3> transfer_;
  double output_tokens_ = 256;
};

}  // namespace baton::router::placement
