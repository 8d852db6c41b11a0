#include "lab/bench/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace baton::lab::bench {
namespace {

std::vector<int32_t> Tokens(const Segment& segment, uint64_t seed = 1, int32_t vocabulary = 2048) {
  std::vector<int32_t> tokens;
  AppendTokens(segment, seed, vocabulary, &tokens);
  return tokens;
}

TEST(PromptTest, TokensAreAFunctionOfSeedAndName) {
  const Segment segment = {Purpose::kTraceTokens, 7, 100};
  EXPECT_EQ(Tokens(segment), Tokens(segment));
  EXPECT_NE(Tokens(segment), Tokens(segment, 2));
  EXPECT_NE(Tokens(segment), Tokens({Purpose::kTraceTokens, 8, 100}));
  EXPECT_NE(Tokens(segment), Tokens({Purpose::kTurnTokens, 7, 100}));
  EXPECT_NE(Tokens(segment), Tokens({Purpose::kTraceTokens, 7 + (uint64_t{1} << 32), 100}));
}

TEST(PromptTest, AShorterSegmentIsAPrefix) {
  const std::vector<int32_t> whole = Tokens({Purpose::kTraceTokens, 7, 64});
  for (int64_t length = 0; length <= 64; ++length) {
    const std::vector<int32_t> part = Tokens({Purpose::kTraceTokens, 7, length});
    ASSERT_EQ(part.size(), static_cast<size_t>(length));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  }
}

TEST(PromptTest, TokensFillTheVocabulary) {
  const std::vector<int32_t> tokens = Tokens({Purpose::kTurnTokens, 1, 5000}, 1, 100);
  EXPECT_THAT(tokens, ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(100))));
  EXPECT_EQ(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 100u);
}

}  // namespace
}  // namespace baton::lab::bench
