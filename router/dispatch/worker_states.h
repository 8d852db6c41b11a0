// WorkerStates: the fleet's workers as the numbers that placement decides by, and the lists that those lean
// on. A snapshot for one decision; under the dispatcher's lock.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "common/kv/index/block_hash.h"
#include "router/fleet/worker.h"
#include "router/index/prefix_index.h"
#include "router/placement/policy.h"

namespace baton::router {

struct WorkerStates {
  std::vector<placement::WorkerState> workers;
  std::deque<std::vector<placement::Booked>> booked;

  WorkerStates(std::span<const std::shared_ptr<fleet::Worker>> from, const index::Matches& matches);
};

// Asks the index what those that hold the most of `chain` have said that they hold: that alone can be
// fetched. The others' confirmed_blocks stay 0. The index may be null.
void ConfirmPeers(const index::PrefixIndex* index, std::span<const kv::BlockHash> chain, WorkerStates& decode,
                  WorkerStates& prefill);

}  // namespace baton::router
