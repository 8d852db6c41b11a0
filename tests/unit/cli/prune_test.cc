#include "cli/model/prune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using testing::HasSubstr;

std::vector<TokenId> Numbers(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.emplace_back(i);
  return tokens;
}

TEST(PruneTextsTest, EveryTenthWindowIsHeldOut) {
  const auto texts = SplitWindows(Numbers(16 * 21 + 5), 16);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->calibration.size(), 16u * 19);
  ASSERT_EQ(texts->held_out.size(), 16u * 2);
  EXPECT_EQ(texts->held_out[0], TokenId(9 * 16));
  EXPECT_EQ(texts->held_out[16], TokenId(19 * 16));
  EXPECT_EQ(texts->calibration[9 * 16], TokenId(10 * 16));
}

TEST(PruneTextsTest, OfFewWindowsTheLastOneIs) {
  const auto texts = SplitWindows(Numbers(3 * 16), 16);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->calibration.size(), 32u);
  EXPECT_EQ(texts->held_out.front(), TokenId(32));
  EXPECT_THAT(std::string(SplitWindows(Numbers(31), 16).status().message()),
              HasSubstr("has 31 tokens: it takes at least two windows of 16"));
}

TEST(PruneTextsTest, NamesTheFileThatIsMissing) {
  EXPECT_THAT(std::string(ReadPruneTexts("models/baton-tiny", "no-such.txt", "", 16).status().message()),
              HasSubstr("no-such.txt"));
}

TEST(PruneTextsTest, ReadsATextByTheModelsTokenizer) {
  const auto texts = ReadPruneTexts("models/baton-tiny", "README.md", "", 32);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_GT(texts->held_out.size(), 0u);
  EXPECT_GT(texts->calibration.size(), 8 * texts->held_out.size());
  EXPECT_EQ(texts->digest.size(), 64u);
  const auto other = ReadPruneTexts("models/baton-tiny", "README.md", "LICENSE", 32);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->digest, texts->digest);
  EXPECT_NE(other->held_out, texts->held_out);
}

TEST(PruneLossTest, GrowthIsAPartOfTheLossBefore) {
  const model::Pruned pruned = {.experts_before = 128,
                                .experts_after = 96,
                                .loss_before = 2,
                                .loss_after = 2.05,
                                .parameters_before = 30'000'000'000,
                                .parameters_after = 23'000'000'000};
  EXPECT_TRUE(CheckLoss(pruned, 0.03).ok());
  EXPECT_EQ(CheckLoss(pruned, 0.02).message(),
            "the loss on held-out text has grown by 2.50%, more than --max-loss 0.02 allows");
  EXPECT_THAT(RenderPruned(pruned), HasSubstr("96 of 128 experts are left"));
  EXPECT_THAT(RenderPruned(pruned), HasSubstr("2.0000 before, 2.0500 after (+2.50%)"));
}

}  // namespace
}  // namespace baton::cli
