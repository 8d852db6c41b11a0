// BlockPool: the bookkeeping of one worker's KV blocks, ids only, no bytes. Every block is in exactly one
// state:
//
//   free    not in use
//   held    referenced by one sequence or more; may also be published under a hash
//   cached  not referenced, published under a hash, waiting in the eviction order, or leased: leased
//           blocks go after all others (lease_table.h)
//
// Invariant (checked by CheckConservation, and after every operation in debug builds): free + held + cached =
// total. Owned by the engine; engine thread only. Every operation is O(blocks named), for leased blocks times
// the logarithm of how many there are. Time is what Advance was told last.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "engine/kv/index/eviction_memory.h"
#include "engine/kv/index/eviction_order.h"
#include "engine/kv/index/lease_table.h"
#include "protocol/block_hash.h"

namespace baton::kv {

class BlockPool {
 public:
  struct Counts {
    int64_t free = 0;
    int64_t held = 0;
    int64_t cached = 0;
    int64_t total = 0;
    int64_t leased = 0;  // of the cached ones
  };

  // The difference between what is published now and what was at the last TakeChanges: for Worker/Watch. A
  // block that came and went in between is in neither list. In no particular order.
  struct Changes {
    // More changed than kMaxPendingChanges since the last TakeChanges: the lists are empty and the
    // watcher starts again from Published().
    bool reset = false;
    std::vector<BlockHash> stored;
    std::vector<BlockHash> evicted;
  };
  static constexpr size_t kMaxPendingChanges = 16384;

  // A published block, as whoever keeps copies of such blocks elsewhere wants to know it (the disk tier).
  struct Cached {
    BlockId block;
    BlockHash hash, root;
    int uses = 0;  // by prompts, as far as is remembered
    bool leased = false;
    double reuse = 0;  // the chance that a block of its kind is used again
  };
  // The share of all blocks that may have a lease.
  static constexpr double kLeaseShare = 0.5;

  explicit BlockPool(int64_t total, Eviction eviction = Eviction::kForecast);

  // Takes `count` blocks, each with one reference and a new generation, evicting cached blocks as needed,
  // those least likely to be used again first (eviction_order.h). All or none: RESOURCE_EXHAUSTED states how
  // many could be had.
  absl::StatusOr<std::vector<BlockId>> Allocate(int64_t count);

  // Longest run of `chain`, from its start, that is published here. Each block gains a reference, counts as
  // used once more, and has its lease, if it has one, renewed.
  std::vector<BlockId> AcquirePrefix(std::span<const BlockHash> chain);

  // Length of that run, without taking references or touching the eviction order.
  int64_t MatchPrefix(std::span<const BlockHash> chain) const;

  // Makes a held block findable under `hash`. If the hash is published already, by another block, nothing
  // changes and that block's id is returned, else `block`. A block has one hash for as long as it is held or
  // cached. `root` is the root of its chain.
  BlockId Publish(BlockId block, const BlockHash& hash, const BlockHash& root = {});

  // Adds a reference to a held or cached block. After Publish returned another block, Retain of that one and
  // Release of one's own leaves a single copy of the same bytes.
  void Retain(BlockId block);

  // Gives up one reference of each. Published blocks without references become cached, others free. Blocks
  // are entered in the eviction order so that later ones (the tail of a chain) go first.
  //
  // So a chain is evicted from its tail as long as its blocks are released together, which holders of a
  // prefix do. If a block in the middle is evicted first, its descendants can't be matched any more (a match
  // is a run from the start). They are never a wrong hit, and since they are not used they are evicted in
  // turn.
  void Release(std::span<const BlockId> blocks);

  // Leases blocks that are held and published: those of a prompt of `tenant` from its block `first` on, as
  // from `since`. Returns how many of them, from the first on, have a lease now: fewer than all where the
  // share for leases is used up.
  int64_t Lease(std::span<const BlockId> blocks, int64_t first, LeaseClass lease_class,
                const LeaseTable::Tenant& tenant, absl::Time since);
  // The leases of a run of blocks that are held, the strongest first.
  std::vector<HeldLease> LeasesOf(std::span<const BlockId> run) const { return leases_.LeasesOf(run, now_); }
  // The share of all blocks that may have a lease, 0 to 1, from now on.
  void SetLeaseShare(double share);
  // The time is `now`, or later already: leases of cached blocks end whose time has passed. That of a block
  // in use ends when it is released.
  void Advance(absl::Time now);
  const LeaseCounts& lease_counts(LeaseClass lease_class) const { return leases_.counts(lease_class); }

  // From now on NextCached knows blocks, and `evicting` is called with each cached block right before its
  // bytes may be written again: it may read them and must not touch the pool.
  void TrackCached(std::function<void(const Cached&)> evicting);
  // Blocks that have become cached, each once for each time, the head of a chain before its tail; those that
  // were evicted since are left out. Their bytes stay until the next Allocate, or change of the pool.
  std::optional<Cached> NextCached();
  // True if NextCached may return a block.
  bool HasNextCached() const { return !recent_.empty(); }

  // Zero before the block was first given out.
  Generation generation(BlockId block) const;
  int references(BlockId block) const;
  std::optional<BlockHash> hash(BlockId block) const;
  Counts counts() const;
  // Blocks that Allocate could hand out now: free + cached.
  int64_t available() const;

  Changes TakeChanges();
  // All published hashes, for a snapshot.
  std::vector<BlockHash> Published() const;

  // CHECK-fails if a count, a list or the hash index disagrees with the blocks. O(total).
  void CheckConservation() const;

 private:
  struct Block {
    int references = 0;
    Generation generation{0};
    bool published = false;
    // Prompts that used it since it was first computed, as far as is remembered; at most kMaxUses.
    uint8_t uses = 0;
    bool recent = false;  // in recent_
    BlockHash hash, root;
  };

  static constexpr uint8_t kMaxUses = 31;

  Block& At(BlockId block);
  const Block& At(BlockId block) const;
  void AddReference(BlockId id);
  void Evict(BlockId id);
  // Cached blocks that have lost their lease enter the eviction order, the first to go first.
  void EnterUnleased(std::span<const BlockId> blocks);
  // The cached block that is evicted next.
  BlockId Victim() { return cached_.size() > 0 ? cached_.First() : leases_.First(); }
  int64_t cached() const { return cached_.size() + leases_.cached_size(); }
  void NoteChange(const BlockHash& hash, bool stored);
  Cached Describe(BlockId id) const;
  // Debug builds: the sum always; everything when the pool is small, else at every 1,024th operation.
  void CheckAfterOperation();

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // the last one is given out first: its bytes may still be in a cache
  EvictionOrder cached_;       // but for those under a lease
  LeaseTable leases_;
  absl::Time now_ = absl::InfinitePast();
  EvictionMemory evicted_;
  int64_t held_ = 0;
  absl::flat_hash_map<BlockHash, BlockId> published_;
  // Net changes since the last TakeChanges: true for stored, false for evicted.
  absl::flat_hash_map<BlockHash, bool> changes_;
  bool changes_lost_ = false;
  std::function<void(const Cached&)> evicting_;  // empty: nobody keeps track
  std::deque<BlockId> recent_;                   // have become cached
  uint64_t operations_ = 0;
};

}  // namespace baton::kv
