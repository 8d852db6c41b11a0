#include "common/engine/batch.h"

#include "common/base/check.h"

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

void Batch::Clear() {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
}

}  // namespace baton::engine
