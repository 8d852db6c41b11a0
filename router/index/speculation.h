// Speculation: the speculative entries of the index: (worker, block) pairs that follow from a placement and
// that the worker has not confirmed yet, each with the time when it expires. Bounded: beyond `max_pairs` the
// first to expire are dropped early. Part of PrefixIndex, under its lock.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "protocol/block_hash.h"
#include "router/index/worker_slot.h"

namespace baton::router::index {

class Speculation {
 public:
  explicit Speculation(int64_t max_pairs) : max_pairs_(max_pairs) {}

  // A life of a slot: from one Join to its Leave. A slot's next worker is another life.
  struct Holder {
    WorkerSlot slot;
    uint64_t life = 0;
  };
  struct Batch {
    Holder holder;
    std::vector<kv::BlockHash> blocks;
  };

  bool empty() const { return until_.empty(); }
  int64_t size() const { return static_cast<int64_t>(until_.size()); }
  bool holds(const Holder& holder, const kv::BlockHash& block) const {
    return until_.contains({holder.life, block});
  }

  // Adds each of these until then, or keeps it longer if it was there already.
  void Add(const Holder& holder, std::vector<kv::BlockHash> blocks, absl::Time until);
  // The worker said so itself, or the contrary. False if it was no speculation.
  bool Settle(const Holder& holder, const kv::BlockHash& block);

  // Takes the next batch that is due by `now`, or that is one too many, with those of its blocks that no one
  // settled or prolonged. False if there is none.
  bool TakeExpired(absl::Time now, Batch* batch);

  int64_t bytes() const;

 private:
  using Pair = std::pair<uint64_t, kv::BlockHash>;
  const int64_t max_pairs_;
  absl::flat_hash_map<Pair, absl::Time> until_;
  std::multimap<absl::Time, Batch> batches_;
  int64_t batched_ = 0;  // blocks in batches_
};

}  // namespace baton::router::index
