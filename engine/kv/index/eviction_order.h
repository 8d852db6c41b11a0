// EvictionOrder: which cached block is evicted next. Blocks that were released together form a run, the piece
// of a conversation that will be used again as a whole or not at all. The oldest run is evicted, unless one
// of a few candidates, picked at random, is clearly worth less by the forecast of its kind and age. A run is
// evicted as a whole, its last block first, so that one whole chain is kept rather than two halves. With
// kLeastRecentlyUsed the oldest run is always the one.
//
// Runs and links live in arrays: an operation takes O(1) time, and none allocates once the arrays have grown.
// Age is measured in blocks entered: no clock, and it follows the cache's turnover. The random picks are a
// function of how many were made before. Part of BlockPool; engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "engine/kv/index/reuse_forecast.h"

namespace baton::kv {

enum class Eviction { kForecast, kLeastRecentlyUsed };

class EvictionOrder {
 public:
  using Kind = ReuseForecast::Kind;

  // For blocks 0 to total - 1, none of which is in the order yet.
  explicit EvictionOrder(int64_t total, Eviction eviction = Eviction::kForecast);

  // From now on blocks belong to another release than those before.
  void BeginRelease() { open_ = kNone; }
  // The next block of the release, from the chain's tail towards its head. It is not in the order.
  void Add(BlockId block, Kind kind);
  // The block is in the order; it goes because it is used again, or evicted.
  void Reuse(BlockId block);
  void Evict(BlockId block);
  // The block to evict next; the order is not empty.
  BlockId First();

  bool contains(BlockId block) const { return links_[block.value()].run != kNone; }
  int64_t size() const { return size_; }

  // When a block in the order entered it, and its kind: what to remember of it, for ReusedAfterEviction.
  uint64_t entered(BlockId block) const { return runs_[links_[block.value()].run].entered; }
  Kind kind(BlockId block) const { return runs_[links_[block.value()].run].kind; }
  // A block that was evicted is wanted again.
  void ReusedAfterEviction(Kind kind, uint64_t entered) { forecast_.Reused(kind, clock_ - entered); }

  // The chance that a block of this kind is used again.
  double ReuseShare(Kind kind) const { return forecast_.ReuseShare(kind); }

  // CHECK-fails if runs and links disagree. O(size).
  void CheckRuns() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kCandidates = 64;

  struct Link {
    uint32_t run = kNone;  // kNone: not in the order
    uint32_t previous = kNone;
    uint32_t next = kNone;
  };
  // Blocks of one release and kind, in the order in which they go.
  struct Run {
    uint32_t first = kNone;
    uint32_t last = kNone;
    uint32_t place = kNone;  // in alive_
    Kind kind{};
    uint64_t entered = 0;
    // Neighbours by age.
    uint32_t older = kNone;
    uint32_t younger = kNone;
  };

  uint32_t NewRun(Kind kind);
  void Remove(BlockId block);
  double Worth(uint32_t run) const;
  uint32_t Least();

  const Eviction eviction_;
  std::vector<Link> links_;
  std::vector<Run> runs_;
  std::vector<uint32_t> spare_;  // runs not in use
  std::vector<uint32_t> alive_;  // runs in use, in no order
  uint32_t oldest_ = kNone, youngest_ = kNone;
  uint32_t open_ = kNone;    // the run that Add goes on with
  uint32_t victim_ = kNone;  // the run that First evicts
  int64_t size_ = 0;
  uint64_t clock_ = 0;  // blocks entered
  uint64_t picks_ = 0;
  ReuseForecast forecast_;
};

}  // namespace baton::kv
