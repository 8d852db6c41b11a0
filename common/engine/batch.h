// Batch: the rows of one step, put together from several sequences. Plain data, engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/engine/penalty_slots.h"
#include "common/model/decoder.h"
#include "common/sampling/sampler.h"

namespace baton::engine {

// What penalties are about: a sequence's tokens, but for one that nobody knows yet, and how many of them are
// its prompt.
struct Seen {
  PenaltySlot* slot = nullptr;
  std::span<const TokenId> tokens;  // outlives the batch's launch
  int64_t prompt_tokens = 0;
};

class Batch {
 public:
  // Appends `tokens` of a sequence whose KV of positions [0, first_position) is in `blocks`. The blocks'
  // memory must outlive the batch. With want_logits, the last row's logits are computed.
  void Add(std::span<const TokenId> tokens, int64_t first_position, std::span<const BlockId> blocks,
           bool want_logits);
  // Appends the row of a sequence whose token at `position` is what draw number `draw` of the step under way
  // gives, and wants its logits.
  void AddTaken(int32_t draw, int64_t position, std::span<const BlockId> blocks);
  // Lets the backend draw the token that follows the sequence added last, at `position`: then the step gives
  // Engine::drawn and no logits. With penalties only if it counts what the sequence has seen: without a slot
  // logits come, and one that lacks tokens is filled anew. The batch must be launched next.
  void Draw(const sampling::Params& params, uint64_t position, const Seen& seen = {});
  void Clear();

  bool empty() const { return tokens_.empty(); }
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }
  // Whether a token is drawn for every row.
  bool draws_all() const { return draws_.size() == tokens_.size(); }
  int64_t logit_count() const { return static_cast<int64_t>(logit_rows_.size()); }
  model::ForwardBatch View() const {
    return {tokens_, sequences_, logit_rows_, draws_, taken_, biases_, seen_};
  }

 private:
  std::vector<TokenId> tokens_;
  std::vector<kernels::SequenceRows> sequences_;
  std::vector<int64_t> logit_rows_;
  std::vector<kernels::RowDraw> draws_;
  std::vector<kernels::TakenToken> taken_;
  std::vector<kernels::TokenBias> biases_;
  std::vector<kernels::SeenTokens> seen_;
};

}  // namespace baton::engine
