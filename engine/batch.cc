#include "engine/batch.h"

#include "common/base/check.h"
#include "common/base/random.h"

namespace baton::engine {

void Batch::Add(const BatchRows& rows) {
  const int64_t count = std::ssize(rows.tokens);
  BATON_CHECK(count > 0 && rows.logit_rows >= 0 && rows.logit_rows <= count);
  BATON_CHECK(std::ssize(rows.blocks) * kBlockTokens >= rows.first_position + count);
  sequences_.push_back({.first_row = std::ssize(tokens_),
                        .rows = count,
                        .first_position = rows.first_position,
                        .blocks = rows.blocks});
  shares_.push_back({.rows = count, .first_logit_row = logit_count(), .logit_rows = rows.logit_rows});
  tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
  for (int64_t row = std::ssize(tokens_) - rows.logit_rows; row < std::ssize(tokens_); ++row) {
    logit_rows_.push_back(row);
  }
}

void Batch::AddFuture(int32_t draw, int64_t position, std::span<const BlockId> blocks) {
  taken_.push_back({.row = static_cast<int32_t>(rows()), .draw = draw});
  const TokenId unknown(0);
  Add({.tokens = std::span(&unknown, 1), .first_position = position, .blocks = blocks, .logit_rows = 1});
}

void Batch::Draw(const sampling::Params& params, int64_t position, const PenaltyHistory& history,
                 std::span<const uint32_t> mask) {
  BATON_CHECK(!sequences_.empty());
  const kernels::SequenceRows& sequence = sequences_.back();
  // Position p is drawn from the row of position p - 1.
  const int64_t row = sequence.first_row + position - 1 - sequence.first_position;
  const int64_t logit_row = logit_count() - (rows() - row);
  const SequenceShare& share = shares_.back();
  BATON_CHECK(row < rows() && logit_row >= share.first_logit_row) << " no logits at position " << position;
  BATON_CHECK(draws_.empty() || draws_.back().row < logit_row);
  kernels::RowDraw draw = {.uniform = UniformAt(params.seed, static_cast<uint64_t>(position)),
                           .row = static_cast<int32_t>(logit_row),
                           .temperature = params.temperature,
                           .top_k = params.top_k,
                           .top_p = params.top_p,
                           .min_p = params.min_p};
  if (params.Penalises()) {
    if (history.slot == nullptr) return;
    // A device counts the tokens of a step's draws in no particular order.
    if (!draws_.empty() && draws_.back().slot == history.slot->index()) return;
    if (history.slot->counted() != position) {
      if (std::ssize(history.tokens) != position) return;  // one of them is a future token
      const auto prompt = static_cast<size_t>(history.prompt_tokens);
      seen_.push_back({.slot = history.slot->index(),
                       .prompt = history.tokens.first(prompt),
                       .output = history.tokens.subspan(prompt)});
    }
    history.slot->set_counted(position + 1);
    draw.slot = history.slot->index();
    draw.repetition_penalty = params.repetition_penalty;
    draw.presence_penalty = params.presence_penalty;
    draw.frequency_penalty = params.frequency_penalty;
  }
  draw.first_bias = static_cast<int32_t>(biases_.size());
  draw.bias_count = static_cast<int32_t>(params.logit_bias.size());
  for (const auto& [token, bias] : params.logit_bias) biases_.push_back({token.value(), bias});
  draw.first_mask = static_cast<int32_t>(masks_.size());
  draw.mask_words = static_cast<int32_t>(mask.size());
  masks_.insert(masks_.end(), mask.begin(), mask.end());
  draws_.push_back(draw);
}

void Batch::Clear() {
  tokens_.clear();
  sequences_.clear();
  shares_.clear();
  logit_rows_.clear();
  draws_.clear();
  taken_.clear();
  biases_.clear();
  seen_.clear();
  masks_.clear();
}

}  // namespace baton::engine
