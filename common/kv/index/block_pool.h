// BlockPool: the bookkeeping of one worker's KV blocks, ids only, no bytes. Every block is in exactly one
// state:
//
//   free    nobody's
//   held    referenced by one sequence or more; may also be published under a hash
//   cached  referenced by nobody, published under a hash, waiting in the eviction order
//
// Invariant (checked by CheckConservation, and after every operation in debug builds): free + held + cached =
// total. Owned by the engine; engine thread only.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/kv/index/block_hash.h"

namespace baton::kv {

class BlockPool {
 public:
  struct Counts {
    int64_t free = 0;
    int64_t held = 0;
    int64_t cached = 0;
    int64_t total = 0;
  };

  // What changed in the prefix cache since the last TakeChanges: for Worker/Watch.
  struct Changes {
    std::vector<BlockHash> stored;
    std::vector<BlockHash> evicted;
  };

  explicit BlockPool(int64_t total);

  // Takes `count` blocks, each with one reference and a new generation, evicting the least recently used
  // cached blocks as needed. All or none: RESOURCE_EXHAUSTED states how many could be had.
  absl::StatusOr<std::vector<BlockId>> Allocate(int64_t count);

  // Longest run of `chain`, from its start, that is published here. Each block gains a reference.
  std::vector<BlockId> AcquirePrefix(std::span<const BlockHash> chain);

  // Length of that run, without taking references or touching the eviction order.
  int64_t MatchPrefix(std::span<const BlockHash> chain) const;

  // Makes a held block findable under `hash`. If the hash is published already, by another block, nothing
  // changes and that block's id is returned, else `block`.
  BlockId Publish(BlockId block, const BlockHash& hash);

  // Adds a reference to a held block.
  void Retain(BlockId block);

  // Gives up one reference of each. Published blocks without references become cached, others free. Blocks
  // are entered in the eviction order so that later ones (the tail of a chain) go first.
  void Release(std::span<const BlockId> blocks);

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
    BlockHash hash;
    std::list<BlockId>::iterator lru;  // valid while cached
  };

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  std::list<BlockId> lru_;  // front: evicted first
  absl::flat_hash_map<BlockHash, BlockId> published_;
  Changes changes_;
  int64_t held_ = 0;
};

}  // namespace baton::kv
