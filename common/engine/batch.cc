#include "common/engine/batch.h"

#include "common/base/check.h"
#include "common/base/random.h"

namespace baton::engine {

void Batch::Add(std::span<const TokenId> tokens, int64_t first_position, std::span<const BlockId> blocks,
                bool want_logits) {
  BATON_CHECK(!tokens.empty());
  const auto rows = static_cast<int64_t>(tokens.size());
  BATON_CHECK(static_cast<int64_t>(blocks.size()) * kBlockTokens >= first_position + rows);
  sequences_.push_back({static_cast<int64_t>(tokens_.size()), rows, first_position, blocks});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (want_logits) logit_rows_.push_back(static_cast<int64_t>(tokens_.size()) - 1);
}

void Batch::AddTaken(int32_t draw, int64_t position, std::span<const BlockId> blocks) {
  taken_.push_back({.row = static_cast<int32_t>(rows()), .draw = draw});
  const TokenId unknown(0);
  Add(std::span(&unknown, 1), position, blocks, true);
}

void Batch::Draw(const sampling::Params& params, uint64_t position, const Seen& seen) {
  BATON_CHECK(!logit_rows_.empty() && logit_rows_.back() + 1 == rows());
  kernels::RowDraw draw = {.uniform = UniformAt(params.seed, position),
                           .row = static_cast<int32_t>(logit_rows_.size()) - 1,
                           .temperature = params.temperature,
                           .top_k = params.top_k,
                           .top_p = params.top_p,
                           .min_p = params.min_p};
  if (params.Penalises()) {
    const auto before = static_cast<int64_t>(position);
    if (seen.slot == nullptr) return;
    if (seen.slot->counted() != before) {
      if (std::ssize(seen.tokens) != before) return;  // one of them nobody knows yet
      const auto prompt = static_cast<size_t>(seen.prompt_tokens);
      seen_.push_back({seen.slot->index(), seen.tokens.first(prompt), seen.tokens.subspan(prompt)});
    }
    seen.slot->set_counted(before + 1);
    draw.slot = seen.slot->index();
    draw.repetition_penalty = params.repetition_penalty;
    draw.presence_penalty = params.presence_penalty;
    draw.frequency_penalty = params.frequency_penalty;
  }
  draw.first_bias = static_cast<int32_t>(biases_.size());
  draw.bias_count = static_cast<int32_t>(params.logit_bias.size());
  for (const auto& [token, bias] : params.logit_bias) biases_.push_back({token.value(), bias});
  draws_.push_back(draw);
}

void Batch::Clear() {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  draws_.clear();
  taken_.clear();
  biases_.clear();
  seen_.clear();
}

}  // namespace baton::engine
