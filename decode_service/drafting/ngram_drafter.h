// NgramDrafter: what followed the same tokens earlier in the sequence's own prompt and answer (Saxena,
// "Prompt Lookup Decoding", 2023). Engine thread.
#pragma once

#include <cstddef>
#include <span>

#include "decode_service/drafting/drafter.h"
#include "decode_service/drafting/ngram_index.h"
#include "decode_service/drafting/survival.h"

namespace baton::decode_service::drafting {

class NgramDrafter final : public Drafter {
 public:
  DrafterKind kind() const override { return DrafterKind::kNgram; }
  void Follow(std::span<const TokenId> tokens) override;
  void Guess(std::span<const TokenId> tokens, size_t most, Draft& draft) override;

 private:
  NgramIndex index_;
  Survival survival_{{0.3, 0.55, 0.75, 0.85, 0.9}};
  NgramIndex::Match at_;  // what comes next in the copy that the answer follows
  size_t seen_ = 0;
};

}  // namespace baton::decode_service::drafting
