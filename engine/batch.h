// Batch: the rows of one step, collected from several sequences. Plain data, engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "engine/model/decoder.h"
#include "engine/penalty_slots.h"
#include "engine/sampling/sampler.h"
#include "engine/step_result.h"

namespace baton::engine {

// One sequence's share of a step: the rows of `tokens`, at positions [first_position, first_position +
// tokens.size()).
struct BatchRows {
  std::span<const TokenId> tokens;  // at least one; copied
  int64_t first_position = 0;       // the KV of positions before it is in `blocks`
  std::span<const BlockId> blocks;  // of the whole sequence, up to its last row; outlives the step
  // Logits are computed for the last `logit_rows` rows: 0 for a chunk that does not end the prompt, 1 for a
  // sequence that goes on by one token, more for rows of drafted tokens that are to be verified.
  int64_t logit_rows = 0;
};

// Input of the penalties: the tokens of a sequence so far, and where the backend counts them.
struct PenaltyHistory {
  PenaltySlot* slot = nullptr;  // null: the backend does not count this sequence's tokens
  std::span<const TokenId>
      tokens;                 // prompt and answer, without tokens still to be drawn; outlives the launch
  int64_t prompt_tokens = 0;  // how many of `tokens` are the prompt's
};

class Batch {
 public:
  // Appends a sequence's rows.
  void Add(const BatchRows& rows);
  // Appends one row of a sequence whose token at `position` is a future token: the one that draw number
  // `draw` of the step in flight will give. Its logits are computed.
  void AddFuture(int32_t draw, int64_t position, std::span<const BlockId> blocks);
  // Asks the backend to draw the token at `position` of the sequence that was added last, from the logits of
  // the row before it: that must be one of its logit rows, and later than rows drawn from already. The
  // StepResult then has the token, and not the logits. With penalties the row is drawn from only if the
  // backend counts the sequence's tokens, and only one row of a sequence per step: otherwise the logits come.
  // A slot that lacks tokens is filled from `history`. mask: as sampling::Sampler takes it; copied. The batch
  // must be launched next.
  void Draw(const sampling::Params& params, int64_t position, const PenaltyHistory& history = {},
            std::span<const uint32_t> mask = {});
  void Clear();

  bool empty() const { return tokens_.empty(); }
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }
  // True if a token is drawn for every row.
  bool draws_all() const { return draws_.size() == tokens_.size(); }
  int64_t logit_count() const { return static_cast<int64_t>(logit_rows_.size()); }
  // By sequence, in the order in which they were added.
  std::span<const SequenceShare> shares() const { return shares_; }
  // The batch as a decoder takes it. Valid until it changes.
  kernels::StepRows step_rows() const {
    return {.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_, .taken = taken_};
  }
  kernels::StepDraws step_draws() const {
    return {.rows = draws_, .biases = biases_, .seen = seen_, .masks = masks_};
  }

 private:
  std::vector<TokenId> tokens_;
  std::vector<kernels::SequenceRows> sequences_;
  std::vector<SequenceShare> shares_;
  std::vector<int64_t> logit_rows_;
  std::vector<kernels::RowDraw> draws_;
  std::vector<kernels::TakenToken> taken_;
  std::vector<kernels::TokenBias> biases_;
  std::vector<kernels::SeenTokens> seen_;
  std::vector<uint32_t> masks_;
};

}  // namespace baton::engine
