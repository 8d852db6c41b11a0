// PromptChain: how the blocks of one sequence are hashed: from a root, each with the tokens up to its end. In
// a prompt with reusable spans, KV also depends on where spans begin and end; so from the block in which the
// first one begins on, the chain is folded with them, and no other prompt's chain has these hashes: an exact
// request never finds a block that depends on landed KV. Immutable, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "protocol/block_hash.h"
#include "protocol/reusable_span.h"

namespace baton::kv {

class PromptChain {
 public:
  // Without spans, a chain is HashChain's.
  PromptChain(const BlockHash& root, std::vector<ReusableSpan> spans = {});  // NOLINT: a root is a chain

  const BlockHash& root() const { return root_; }
  std::span<const ReusableSpan> spans() const { return spans_; }

  // Hash of block `index`, which follows `parent` (the root, of block 0) and holds `tokens`.
  BlockHash Child(const BlockHash& parent, int64_t index, std::span<const TokenId> tokens) const;
  // Hashes of all full blocks of `tokens`, which begin the sequence.
  std::vector<BlockHash> Hashes(std::span<const TokenId> tokens) const;

 private:
  BlockHash root_;
  std::vector<ReusableSpan> spans_;  // ascending
};

// Root of the canonical sequences of a tenant's spans: SHA-256("baton/kv/chunk/1", usual root). The usual
// root stands for the model and the tenant's salt.
BlockHash CanonicalRoot(const BlockHash& root);

}  // namespace baton::kv
