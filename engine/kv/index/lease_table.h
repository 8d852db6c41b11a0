// LeaseTable: which blocks of a pool have a lease (fleet::v1::CacheLease): until when, in which class, and
// for which tenant. A lease only orders eviction: blocks without one go first, then those leased for five
// minutes, then those leased for an hour, in each class the nearest to its end first, and of one prompt the
// tail first. It never keeps anything from having a block.
//
// Leased blocks are at most a share of the pool. Each tenant that has any owns an equal part of that share;
// beyond its part it borrows what others leave, gives it back when one of them asks for its own, and is
// evicted from before others are.
//
// Part of BlockPool; engine thread only. Times are the caller's; every operation takes time logarithmic in
// the number of leased blocks, and Grant, when the share is used up, and First linear in the number of
// tenants.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "protocol/block_hash.h"
#include "protocol/lease.h"

namespace baton::kv {

// In blocks, since the start.
struct LeaseCounts {
  int64_t granted = 0;
  // A prompt used a leased block again.
  int64_t renewed = 0;
  // A lease ended, and no prompt had used the block again.
  int64_t expired_unused = 0;
  // A leased block was evicted, or its lease was given back for another tenant's.
  int64_t broken = 0;

  bool operator==(const LeaseCounts&) const = default;
};

class LeaseTable {
 public:
  // A tenant is the root of its chains.
  using Tenant = BlockHash;

  // At most `most` blocks have a lease.
  explicit LeaseTable(int64_t most) : most_(most) {}
  // Leases beyond that stay until they expire.
  void SetMost(int64_t most) { most_ = most; }

  struct Grant {
    bool granted = false;
    // A cached block that has lost its lease to this one.
    std::optional<BlockId> dropped;
  };
  // The block is in use, and the `depth`-th of its prompt. A block that has a lease keeps the stronger class
  // and the later end.
  Grant Lease(BlockId block, LeaseClass lease_class, const Tenant& tenant, int64_t depth, absl::Time since);
  // A prompt uses the block again; nothing if it has no lease. The block is in use.
  void Renew(BlockId block, absl::Time since);

  // A leased block is in use, or waits in the cache. Both from the other state; a lease begins in use.
  void Hold(BlockId block);
  void Cache(BlockId block);

  // Ends the lease of a block that leaves its use, if its time has passed. Whether it did.
  bool EndIfPast(BlockId block, absl::Time now);
  // Ends the leases of cached blocks whose time has passed: the blocks, in the order in which they would have
  // been evicted.
  std::vector<BlockId> Expire(absl::Time now);
  // Ends the lease of a block that is evicted.
  void Break(BlockId block);

  bool contains(BlockId block) const { return leases_.contains(block); }
  // The leases of a run of blocks, the strongest first. Those of a class end together here, when the last of
  // them ends: a lease of a block is one of all before it.
  std::vector<HeldLease> LeasesOf(std::span<const BlockId> run, absl::Time now) const;
  bool cached(BlockId block) const;
  // The cached block to evict first; there is one.
  BlockId First() const;

  int64_t size() const { return std::ssize(leases_); }
  int64_t cached_size() const { return std::ssize(cached_[0]) + std::ssize(cached_[1]); }
  const LeaseCounts& counts(LeaseClass lease_class) const {
    return counts_[static_cast<size_t>(lease_class)];
  }

  // CHECK-fails if the tables disagree. O(size).
  void CheckTables() const;

 private:
  struct Key {
    LeaseClass lease_class;
    absl::Time until;
    int64_t before_tail;  // minus its depth
    BlockId block;
    friend bool operator<(const Key& a, const Key& b) {
      return std::tie(a.lease_class, a.until, a.before_tail, a.block) <
             std::tie(b.lease_class, b.until, b.before_tail, b.block);
    }
  };
  struct Entry {
    LeaseClass lease_class = LeaseClass::k5m;
    bool cached = false;
    bool used_again = false;
    int64_t depth = 0;
    absl::Time until;
    Tenant tenant;
  };
  struct Share {
    int64_t blocks = 0;
    absl::btree_set<Key> cached;
  };

  static Key KeyOf(BlockId block, const Entry& entry) {
    return {entry.lease_class, entry.until, -entry.depth, block};
  }
  LeaseCounts& Count(const Entry& entry) { return counts_[static_cast<size_t>(entry.lease_class)]; }
  // The tenant that has most beyond `part` blocks, and some of them cached. Null: none has.
  const Share* Borrower(int64_t part) const;
  // Room for one more lease of the tenant: true, and the block that gave its lease back for it, if any.
  Grant MakeRoom(const Tenant& tenant);
  void Remove(BlockId block);

  int64_t most_;
  absl::flat_hash_map<BlockId, Entry> leases_;
  // Cached blocks of each class, and leases of each tenant.
  std::array<absl::btree_set<Key>, kLeaseClasses> cached_;
  absl::flat_hash_map<Tenant, Share> tenants_;  // those that have leases
  std::array<LeaseCounts, kLeaseClasses> counts_;
};

}  // namespace baton::kv
