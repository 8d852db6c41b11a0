// SequenceKv: the blocks of the KV pool that one sequence holds: its block table, how many tokens of it are
// computed, the hashes under which its full blocks are published, and the leases under which they stay in the
// prefix cache. It is the one place where a sequence's blocks go back to the pool: Release is idempotent, and
// the destructor calls it. Engine thread only, but for one that has never had a block: it does not touch the
// pool, so that a request which the engine refuses may end on any thread. The pool outlives it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "engine/kv/index/block_pool.h"
#include "protocol/prompt_chain.h"

namespace baton::engine {

class SequenceKv {
 public:
  // With kNone it finds no published block and publishes none: all of its tokens are computed.
  enum class Sharing { kPrefixes, kNone };
  // chain: how its blocks are hashed.
  SequenceKv(kv::BlockPool& pool, kv::PromptChain chain, Sharing sharing = Sharing::kPrefixes)
      : pool_(&pool), chain_(std::move(chain)), sharing_(sharing) {}
  ~SequenceKv() { Release(); }
  SequenceKv(const SequenceKv&) = delete;
  SequenceKv& operator=(const SequenceKv&) = delete;

  // Leases the first blocks of the prompt, as from `since`: those that Reserve finds, and others as they are
  // computed. Before Reserve.
  void Lease(std::vector<kv::PrefixLease> leases, absl::Time since);

  // The blocks from the `first`-th on come from a worker that has these leases of them. A lease of a block is
  // one of all before it: those that are here are leased now, and others as they are computed, for what is
  // left at `now`.
  void Inherit(std::span<const kv::HeldLease> leases, int64_t first, absl::Time now);

  // Takes the published prefix of `tokens`, at most up to the block before the last token (its logits are
  // needed), and blocks for `capacity` tokens in all. All or nothing: RESOURCE_EXHAUSTED leaves the pool as
  // it was.
  absl::Status Reserve(std::span<const TokenId> tokens, int64_t capacity);
  // The same of tokens that are full blocks, all of which may be found: nobody needs logits.
  absl::Status ReserveWhole(std::span<const TokenId> tokens);

  // Blocks for `capacity` tokens in all. RESOURCE_EXHAUSTED changes nothing.
  absl::Status Grow(int64_t capacity);

  // Gives back the last blocks that are not needed for `capacity` tokens, which are all that are computed or
  // more: those taken for tokens that were drafted and refused. No step in flight has rows in them.
  void Trim(int64_t capacity);

  // The KV of tokens [0, computed) is in the blocks: publishes the full ones. `tokens` is the whole sequence
  // so far.
  void Computed(std::span<const TokenId> tokens, int64_t computed);

  // Gives every block back to the pool. Published blocks stay in the prefix cache.
  void Release();

  std::span<const BlockId> blocks() const { return blocks_; }
  // Tokens that Reserve found, a multiple of the block size.
  int64_t cached_tokens() const { return cached_; }
  // Tokens of the leading blocks that have got a lease by Lease; what the pool has no room for is left out.
  int64_t leased_tokens() const { return own_.leased * kBlockTokens; }
  // Tokens whose KV is in the blocks.
  int64_t computed_tokens() const { return computed_; }

 private:
  absl::Status Reserve(const std::vector<kv::BlockHash>& findable, int64_t capacity);
  void GiveUpReplaced();
  // Leases to be had, and how far they are.
  struct Asked {
    struct Since : kv::PrefixLease {
      absl::Time since;
    };
    std::vector<Since> leases;
    int64_t leased = 0;    // blocks
    bool refused = false;  // the pool has room for no more
  };
  // Leases the published blocks that are to have a lease and have none yet.
  void LeasePublished();
  void LeasePublished(Asked& asked);

  kv::BlockPool* pool_;
  kv::PromptChain chain_;
  const Sharing sharing_;
  std::vector<BlockId> blocks_;
  std::vector<kv::BlockHash> hashes_;  // of the published run, in order
  std::vector<BlockId> replaced_;      // by equal blocks of other sequences; still held
  Asked own_, inherited_;              // by the prompt's marks; from where blocks were fetched
  int64_t cached_ = 0;
  int64_t computed_ = 0;
};

}  // namespace baton::engine
