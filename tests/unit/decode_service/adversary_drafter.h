// AdversaryDrafter: a drafter that knows the right answer and makes of it what is worst for a scheduler:
// tokens that are all wrong, right and then wrong, beyond the end of the answer, or no tokens of the model at
// all. One per sequence.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "decode_service/drafting/drafter.h"

namespace baton::decode_service {

enum class Adversary { kWrong, kRight, kRightThenWrong, kAnything, kNoTokens };
inline constexpr std::array kAdversaries = {Adversary::kWrong, Adversary::kRight, Adversary::kRightThenWrong,
                                            Adversary::kAnything, Adversary::kNoTokens};

class AdversaryDrafter final : public drafting::Drafter {
 public:
  // right: the answer to a prompt of so many tokens.
  AdversaryDrafter(Adversary adversary, int32_t vocabulary, std::vector<TokenId> right, size_t prompt,
                   uint64_t seed)
      : adversary_(adversary),
        vocabulary_(vocabulary),
        right_(std::move(right)),
        prompt_(prompt),
        random_(static_cast<uint32_t>(seed)) {}
  drafting::DrafterKind kind() const override { return drafting::DrafterKind::kNgram; }
  void Follow(std::span<const TokenId> tokens) override { followed_ = tokens.size(); }
  void Guess(std::span<const TokenId> tokens, size_t most, drafting::Draft& draft) override {
    EXPECT_EQ(followed_, tokens.size());
    const size_t wrong_from = random_() % 6;
    for (size_t i = 0; i < most; ++i) {
      const size_t at = tokens.size() - prompt_ + i;
      // Behind the end of the answer, too.
      TokenId token = at < right_.size() ? right_[at] : Any();
      const bool wrong =
          adversary_ == Adversary::kWrong || (adversary_ == Adversary::kRightThenWrong && i >= wrong_from);
      if (wrong) token = TokenId((token.value() + 1 + static_cast<int32_t>(random_() % 7)) % vocabulary_);
      if (adversary_ == Adversary::kAnything) token = Any();
      if (adversary_ == Adversary::kNoTokens && i >= wrong_from)
        token = TokenId(random_() % 2 == 0 ? -7 : vocabulary_);
      draft.tokens.push_back(token);
      draft.survival.push_back(1.0);
    }
  }

 private:
  TokenId Any() { return TokenId(static_cast<int32_t>(random_() % static_cast<uint32_t>(vocabulary_))); }

  const Adversary adversary_;
  const int32_t vocabulary_;
  const std::vector<TokenId> right_;
  const size_t prompt_;
  std::minstd_rand random_;
  size_t followed_ = 0;
};

}  // namespace baton::decode_service
