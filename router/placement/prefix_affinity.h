// PrefixAffinity: the placement that is predicted to cost the fewest seconds, of this request and of others.
// README.md derives the cost. Per worker it learns what a prefill takes, per decode worker what a step takes;
// a worker begins with what it says of itself, or as an average one.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "common/forecast/linear_fit.h"
#include "common/forecast/prefill_forecast.h"
#include "router/placement/policy.h"

namespace baton::router::placement {

class PrefixAffinity final : public Policy {
 public:
  struct Options {
    // Times the worker's queue: what a second of compute there costs others.
    double congestion = 2;
    // A second that a running sequence waits for its own batch's steps, against one of TTFT;
    double decode_weight = 0.1;
    // and one that it is held up by a prompt that is computed beside it.
    double stream_weight = 3;
    // Of a second of compute that a cached block will save: what a second copy of it displaces.
    double displacement = 0.3;
    // Of a second of compute that leaves its blocks on a decode worker: what prompts to come lose by it.
    double lost_reuse = 0.6;
    // Prior of a transfer: seconds, and seconds per token.
    double transfer_base = 3e-3;
    double transfer_token = 6e-6;
    // What prefill workers order their queues by.
    forecast::QueueTargets targets = forecast::QueueTargets::For(forecast::kDefaultSloTtft);
    // Seconds that decode workers keep a step with rows of prompts within, while answers run.
    double slo_tpot = forecast::kDefaultSloTpot;
  };
  PrefixAffinity(Options options, uint64_t seed);
  std::string_view name() const override { return "prefix_affinity"; }
  Selection Select(const Request& request, Workers decode, Workers prefill) override;
  void Observe(const Outcome& outcome) override;
  void Introduce(WorkerSlot slot, const forecast::StepCost& cost) override;
  void OnWorkerLeft(WorkerSlot slot, Incarnation incarnation) override;
  void OnWorkerBack(WorkerSlot slot, Incarnation incarnation) override;
  void OnSlotFreed(WorkerSlot slot) override;

 private:
  struct Learnt {
    forecast::PrefillForecast prefill;
    forecast::LinearFit<3> step;
    bool seen = false;  // at work, or introduced
  };
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

  static Learnt OneWorker(const forecast::StepCost& step, const forecast::PrefillCost& prefill);
  const Learnt& Of(WorkerSlot slot) const;
  Learnt& Learn(WorkerSlot slot);
  double Transfer(int64_t tokens) const;
  size_t SelectDecode(const Request& request, Workers decode, bool alone, uint64_t tie_key) const;
  double DecodeCost(const Request& request, const WorkerState& worker, bool alone) const;
  double BlockWait(const Request& request, const WorkerState& worker, double lifetime) const;
  // Seconds until a prompt that is due then would begin there.
  double Wait(const Request& request, const WorkerState& worker, absl::Time due) const;
  // The decode worker itself, with so many leading blocks of the prompt: no queue but its own, no transfer,
  // and every answer that runs there waits for its rows.
  Prediction Local(const Request& request, const WorkerState& decoder, int64_t blocks) const;
  double LocalCost(const Prediction& local) const;
  Candidate Score(const Request& request, Workers prefill, size_t at, int64_t fetchable) const;

  // The least loaded of those that hold so many blocks for certain.
  std::optional<WorkerSlot> Peer(Workers prefill, Workers decode, int64_t blocks, uint64_t tie_key) const;
  static void TakeBest(Workers prefill, std::vector<Candidate>& candidates, Selection& selection);

  // The place of a prompt that takes so many seconds, in its worker's order by now.
  absl::Time DueNow(const Booked& booked, double seconds, absl::Time now) const;

  const Options options_;
  const uint64_t seed_;
  uint64_t next_tie_key_ = 0;
  // Of workers that left, the oldest goes first.
  static constexpr size_t kMaxKept = 1024;

  std::vector<Learnt> learnt_;  // by slot
  std::deque<std::pair<Incarnation, Learnt>> kept_;
  Learnt average_;
  forecast::LinearFit<3> transfer_;
  double output_tokens_ = 256;
};

}  // namespace baton::router::placement
