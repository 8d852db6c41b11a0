// DispatchCore: how a choice is placed, as arithmetic over plain states: which worker holds how much of the
// prompt, which workers the policy selects, what is booked on them, whether the first token can come in time,
// and which blocks the index is to expect on them. It learns from first tokens and outcomes. `baton simulate`
// runs this same code, so what is tuned there is what the router does.
//
// It has no thread, lock, clock or worker object, and sees no wire. One thread at a time (the dispatcher's
// lock).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "protocol/block_hash.h"
#include "router/admission/refusal.h"
#include "router/admission/request.h"
#include "router/admission/ttft_deadlines.h"
#include "router/dispatch/batch_bound.h"
#include "router/index/prefix_index.h"
#include "router/placement/policy.h"

namespace baton::router {

// Blocks of a prompt, from the block `from` to the last, that the worker on `slot` is expected to hold, until
// then at most.
struct SpeculativeRun {
  WorkerSlot slot;
  size_t from = 0;
  absl::Time until;
  friend bool operator==(const SpeculativeRun&, const SpeculativeRun&) = default;
};

class DispatchCore {
 public:
  // The index outlives the core; null: no worker is known to hold anything. `default_ttft`: what the first
  // token of a request without a deadline may take.
  DispatchCore(std::unique_ptr<placement::Policy> policy, absl::Duration default_ttft,
               index::PrefixIndex* index)
      : policy_(std::move(policy)), deadlines_(default_ttft), index_(index) {}

  placement::Policy& policy() { return *policy_; }
  admission::TtftDeadlines& deadlines() { return deadlines_; }
  const admission::TtftDeadlines& deadlines() const { return deadlines_; }
  BatchBound& batch_bound() { return batch_bound_; }
  const BatchBound& batch_bound() const { return batch_bound_; }

  // Fills in what the index knows of the prompt `chain`: matched_blocks of each state, confirmed_blocks of
  // decode workers and those that leave, and of those prefill workers that hold most of it and serve fetches.
  // Other states keep the confirmed_blocks that they have.
  void Match(std::span<const kv::BlockHash> chain, std::span<placement::WorkerState> decode,
             std::span<placement::WorkerState> prefill, std::span<placement::WorkerState> leaving = {});
  // The last Match's results.
  const index::Matches& matches() const { return matches_; }

  // The policy's selection, complete.
  placement::Selection Select(const Request& request, placement::Pools pools);

  // The first token of a request that is placed so. Nothing is predicted as long as the policy doesn't, or
  // has learnt from few requests.
  admission::FirstToken Estimate(const Request& request, const placement::Prediction& predicted) const;
  // True if the first token is predicted too late. Never while nothing runs (not `busy`): then the request is
  // tried, and its outcome corrects a prediction that is too long. Nor once it is late already: that is for
  // the queue to answer.
  static bool TooLate(const admission::FirstToken& first, absl::Time now, bool busy);

  // The index expects the prompt `chain` on the selected workers from now on: at most `at_once` blocks of
  // each are entered as speculative entries. Returns the runs that are left for PrefixIndex::Speculate, which
  // needs no lock of the caller.
  std::vector<SpeculativeRun> Expect(const placement::Selection& selection,
                                     std::span<const kv::BlockHash> chain, absl::Time now,
                                     size_t at_once = SIZE_MAX);
  // Until when the blocks of a prompt are expected.
  static absl::Time ExpectUntil(const placement::Prediction& predicted, absl::Time now);

 private:
  const std::unique_ptr<placement::Policy> policy_;
  admission::TtftDeadlines deadlines_;
  BatchBound batch_bound_;
  index::PrefixIndex* const index_;  // null: nothing is matched
  index::Matches matches_;
};

}  // namespace baton::router
