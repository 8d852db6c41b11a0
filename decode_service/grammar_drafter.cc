#include "decode_service/grammar_drafter.h"

#include <algorithm>

namespace baton::decode_service {

void GrammarDrafter::Follow(std::span<const TokenId> tokens) {
  for (; seen_ > 0 && seen_ < tokens.size() && next_ < forced_.tokens.size(); ++seen_) {
    const bool right = tokens[seen_] == forced_.tokens[next_];
    survival_.Observe(next_, right);
    next_ = right ? next_ + 1 : forced_.tokens.size();
  }
  seen_ = tokens.size();
}

void GrammarDrafter::Guess(std::span<const TokenId> tokens, size_t most, drafting::Draft& draft) {
  if (next_ >= forced_.tokens.size()) {
    forced_ = grammar_.ForcedTokens();
    // Tokens may have come since they were found: they have to be the first of these.
    const auto since = static_cast<size_t>(grammar_.pushed() - forced_.after);
    const bool stands = since < forced_.tokens.size() && since <= tokens.size() &&
                        std::ranges::equal(tokens.last(since), std::span(forced_.tokens).first(since));
    next_ = stands ? since : forced_.tokens.size();
  }
  double survival = 1;
  for (size_t i = next_; i < forced_.tokens.size() && draft.tokens.size() < most; ++i) {
    survival *= survival_.Chance(i);
    draft.tokens.push_back(forced_.tokens[i]);
    draft.survival.push_back(survival);
  }
}

}  // namespace baton::decode_service
