#include "decode_service/drafting/ngram_drafter.h"

namespace baton::decode_service::drafting {
namespace {

// Tokens of a long prompt taken in one step: some 0.2 ms.
constexpr size_t kTakenAtOnce = 4096;

}  // namespace

void NgramDrafter::Follow(std::span<const TokenId> tokens) {
  if (seen_ > 0) {
    for (; seen_ < tokens.size() && at_.length > 0; ++seen_) {
      const bool right = tokens[at_.next] == tokens[seen_];
      survival_.Observe(at_.length, right);
      at_ = right ? NgramIndex::Match{at_.next + 1, at_.length + 1} : NgramIndex::Match{};
    }
  }
  seen_ = tokens.size();
  index_.Extend(tokens, kTakenAtOnce);
  if (at_.length >= NgramIndex::kLongest) return;
  const NgramIndex::Match found = index_.Find(tokens, tokens, at_.length);
  if (found.length > 0) at_ = found;
}

void NgramDrafter::Guess(std::span<const TokenId> tokens, size_t most, Draft& draft) {
  if (at_.length == 0) return;
  double survival = 1;
  for (size_t i = 0; i < most; ++i) {
    const size_t place = at_.next + i;
    // Behind the end of the text comes what is drafted: a text that repeats itself goes on doing so.
    const TokenId token = place < tokens.size() ? tokens[place] : draft.tokens[place - tokens.size()];
    survival *= survival_.Chance(at_.length + i);
    draft.tokens.push_back(token);
    draft.survival.push_back(survival);
  }
}

}  // namespace baton::decode_service::drafting
