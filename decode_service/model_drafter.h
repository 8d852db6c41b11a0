// ModelDrafter: what a model has drafted of one answer and is still to be checked, how often it is right, and
// the blocks of a private pool in which the draft model has the answer's KV. The drafting itself is done for
// all sequences together, by ModelDrafts (model_drafts.h); to everybody else this is a drafter like others.
// It gives its blocks back when it goes. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "decode_service/drafting/drafter.h"
#include "decode_service/drafting/survival.h"
#include "engine/kv/index/block_pool.h"

namespace baton::decode_service {

class ModelDrafter final : public drafting::Drafter {
 public:
  // learnt: how often the model is right in all sequences of the worker, to which this one adds. pool: of the
  // draft model's KV; null: drafts have theirs in the sequence's own blocks. Both outlive it.
  ModelDrafter(drafting::DrafterKind kind, drafting::Survival& learnt, kv::BlockPool* pool)
      : kind_(kind), learnt_(learnt), survival_(&learnt), pool_(pool) {}
  ~ModelDrafter() override { GiveBack(); }
  ModelDrafter(const ModelDrafter&) = delete;
  ModelDrafter& operator=(const ModelDrafter&) = delete;

  drafting::DrafterKind kind() const override { return kind_; }
  void Follow(std::span<const TokenId> tokens) override;
  // Offers the tokens drafted so far.
  void Guess(std::span<const TokenId> tokens, size_t most, drafting::Draft& draft) override;

  // Tokens behind the sequence's last one that are drafted and may still be right.
  std::span<const TokenId> drafted() const { return std::span(drafted_).subspan(next_); }
  // Another one.
  void Push(TokenId token);
  // They are not wanted any more.
  void Drop();
  // For each of so many tokens, drafted or not yet, the chance that the model draws it and all before it.
  std::vector<double> Expect(size_t tokens) const;

  // Tokens whose KV the draft model has, drafted ones included; in a pool of its own.
  int64_t computed() const { return computed_; }
  void Computed(int64_t tokens) { computed_ = tokens; }
  std::span<const BlockId> blocks() const { return blocks_; }
  // Blocks for so many tokens in all. False, and nothing has changed: the pool has too few.
  bool Grow(int64_t tokens);
  // Gives the blocks back; the KV is computed again, if it is wanted again.
  void GiveBack();

 private:
  const drafting::DrafterKind kind_;
  drafting::Survival& learnt_;
  drafting::Survival survival_;
  kv::BlockPool* const pool_;     // null: drafts have no KV of their own
  size_t seen_ = 0;               // tokens of the sequence; 0: none yet
  std::vector<TokenId> drafted_;  // the first one was drafted for the place behind the first `seen_ - next_`
  size_t next_ = 0;               // of them, so many are in the sequence now
  size_t agreed_ = 0;             // tokens in a row that were right
  std::vector<BlockId> blocks_;
  int64_t computed_ = 0;
};

}  // namespace baton::decode_service
