// A model's drafts of one answer, token by token: which of them stand, how far their KV is valid, and how far
// the next ones are trusted.
#include "decode_service/model_drafter.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::decode_service {
namespace {

class ModelDrafterTest : public testing::Test {
 protected:
  void Follow(int token) {
    tokens_.emplace_back(token);
    drafter_.Follow(tokens_);
  }
  drafting::Draft Guess(size_t most) {
    drafting::Draft draft;
    drafter_.Guess(tokens_, most, draft);
    return draft;
  }

  drafting::Survival learnt_{{0.6, 0.6, 0.6, 0.6, 0.6}};
  kv::BlockPool pool_{4};
  ModelDrafter drafter_{drafting::DrafterKind::kDraftModel, learnt_, &pool_};
  std::vector<TokenId> tokens_ = std::vector<TokenId>(20, TokenId(1));
};

TEST_F(ModelDrafterTest, WhatWasRightGoesAndTheRestStands) {
  drafter_.Follow(tokens_);
  EXPECT_TRUE(Guess(4).tokens.empty());
  for (const int token : {5, 6, 7}) drafter_.Push(TokenId(token));
  drafter_.Computed(22);  // of 20 tokens, and of 5 and 6
  EXPECT_EQ(Guess(2).tokens, (std::vector<TokenId>{TokenId(5), TokenId(6)}));
  Follow(5);
  EXPECT_EQ(Guess(4).tokens, (std::vector<TokenId>{TokenId(6), TokenId(7)}));
  drafter_.Push(TokenId(8));
  EXPECT_EQ(Guess(4).tokens, (std::vector<TokenId>{TokenId(6), TokenId(7), TokenId(8)}));
  Follow(9);
  EXPECT_TRUE(Guess(4).tokens.empty());
  EXPECT_EQ(drafter_.computed(), 21) << "the KV of 6 is at the place of 9";
}

TEST_F(ModelDrafterTest, ItIsTrustedByWhatItHasShownAndTriedAgain) {
  drafter_.Follow(tokens_);
  const double before = drafter_.Expect(1).front();
  for (int i = 0; i < 12; ++i) {
    drafter_.Push(TokenId(5));
    Follow(6);
  }
  const double given_up = drafter_.Expect(1).front();
  EXPECT_LT(given_up, 0.3 * before);
  // Another answer begins with what this one has shown.
  ModelDrafter other(drafting::DrafterKind::kDraftModel, learnt_, &pool_);
  EXPECT_LT(other.Expect(1).front(), 0.5 * before);
  for (int i = 0; i < 20'000; ++i) Follow(6);
  EXPECT_GT(drafter_.Expect(1).front(), 0.9 * before);
}

TEST_F(ModelDrafterTest, BlocksAreAllOrNoneAndGoBack) {
  EXPECT_TRUE(drafter_.Grow(33));
  EXPECT_EQ(pool_.counts().held, 3);
  {
    ModelDrafter other(drafting::DrafterKind::kDraftModel, learnt_, &pool_);
    EXPECT_FALSE(other.Grow(17));
    EXPECT_TRUE(other.blocks().empty());
    EXPECT_TRUE(other.Grow(16));
    EXPECT_EQ(pool_.counts().free, 0);
  }
  EXPECT_EQ(pool_.counts().held, 3);
  drafter_.Computed(30);
  drafter_.GiveBack();
  EXPECT_EQ(drafter_.computed(), 0);
  EXPECT_EQ(pool_.counts().held, 0);
}

}  // namespace
}  // namespace baton::decode_service
