#include "lab/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace baton::lab::bench {
namespace {

std::vector<int32_t> Tokens(const Turn& turn, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (const Segment& segment : turn.segments) AppendTokens(segment, seed, 1000, &tokens);
  return tokens;
}

TEST(SyntheticTest, IsAFunctionOfItsSeed) {
  SyntheticSettings settings;
  settings.seed = 4;
  settings.prompt = *Distribution::Parse("uniform:1:500");
  settings.rate = 10;
  settings.turns = 3;
  settings.think_seconds = *Distribution::Parse("uniform:0:2");
  const std::unique_ptr<Workload> a = MakeSynthetic(settings);
  const std::unique_ptr<Workload> b = MakeSynthetic(settings);
  for (int i = 0; i < 50; ++i) {
    const Conversation left = *a->Next();
    const Conversation right = *b->Next();
    EXPECT_EQ(left.arrival, right.arrival);
    ASSERT_EQ(left.turns.size(), 3u);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(left.turns[k].segments, right.turns[k].segments);
      EXPECT_EQ(left.turns[k].output_tokens, right.turns[k].output_tokens);
      EXPECT_EQ(left.turns[k].think, right.turns[k].think);
    }
    EXPECT_EQ(left.turns[0].think, absl::ZeroDuration());
  }
}

TEST(SyntheticTest, NoTwoTurnsAskTheSame) {
  SyntheticSettings settings;
  settings.turns = 3;
  const std::unique_ptr<Workload> workload = MakeSynthetic(settings);
  std::set<std::vector<int32_t>> prompts;
  for (int i = 0; i < 100; ++i) {
    const Conversation conversation = *workload->Next();
    for (const Turn& turn : conversation.turns) prompts.insert(Tokens(turn, settings.seed));
  }
  EXPECT_EQ(prompts.size(), 300u);
}

TEST(SyntheticTest, PrefixGroupsShareAPrefixWithinAndNotAcross) {
  SyntheticSettings settings;
  settings.shared_prefix_tokens = 64;
  settings.prefix_groups = 4;
  const std::unique_ptr<Workload> workload = MakeSynthetic(settings);
  std::map<std::vector<int32_t>, int> prefixes;
  for (int i = 0; i < 400; ++i) {
    const std::vector<int32_t> tokens = Tokens(workload->Next()->turns[0], settings.seed);
    ASSERT_EQ(tokens.size(), 64u + 256u);
    ++prefixes[{tokens.begin(), tokens.begin() + 64}];
  }
  ASSERT_EQ(prefixes.size(), 4u);
  for (const auto& [prefix, count] : prefixes) EXPECT_NEAR(count, 100, 40);
}

TraceEntry Entry(double stamp, int64_t input, int64_t output, std::vector<uint64_t> ids) {
  return {stamp, input, output, std::move(ids)};
}

TEST(TraceWorkloadTest, EqualIdsAreEqualPrefixesAndLengthsAreExact) {
  TraceSettings settings;
  settings.seed = 3;
  const std::unique_ptr<Workload> workload =
      MakeTrace({Entry(100, 1000, 7, {0, 1}), Entry(600, 1500, 9, {0, 1, 2})}, settings);
  const Conversation first = *workload->Next();
  const Conversation second = *workload->Next();
  EXPECT_FALSE(workload->Next().has_value());
  EXPECT_EQ(*first.arrival, absl::ZeroDuration()) << "the first request is the start";
  EXPECT_EQ(*second.arrival, absl::Milliseconds(500));
  const std::vector<int32_t> short_one = Tokens(first.turns[0], settings.seed);
  const std::vector<int32_t> long_one = Tokens(second.turns[0], settings.seed);
  EXPECT_EQ(short_one.size(), 1000u);
  EXPECT_EQ(long_one.size(), 1500u);
  EXPECT_TRUE(std::equal(short_one.begin(), short_one.end(), long_one.begin()));
  EXPECT_EQ(first.turns[0].output_tokens, 7);
}

TEST(TraceWorkloadTest, SpeedDividesTime) {
  TraceSettings settings;
  settings.speed = 4;
  const std::unique_ptr<Workload> workload =
      MakeTrace({Entry(0, 1, 1, {0}), Entry(1000, 1, 1, {0})}, settings);
  workload->Next();
  EXPECT_EQ(*workload->Next()->arrival, absl::Milliseconds(250));
}

TEST(TraceWorkloadTest, BucketsAreSpreadEvenly) {
  std::vector<TraceEntry> entries;
  for (int i = 0; i < 3000; ++i) entries.push_back(Entry(i < 1500 ? 0 : 2999, 1, 1, {0}));
  TraceSettings settings;
  settings.spread = true;
  const std::unique_ptr<Workload> workload = MakeTrace(entries, settings);
  std::map<int64_t, int> by_second;
  absl::Duration last;
  while (std::optional<Conversation> conversation = workload->Next()) {
    EXPECT_GE(*conversation->arrival, last) << "in order";
    last = *conversation->arrival;
    ++by_second[absl::ToInt64Seconds(last)];
  }
  // Two buckets of three seconds; 2,999 belongs to the second.
  ASSERT_EQ(by_second.size(), 6u);
  for (const auto& [second, count] : by_second) EXPECT_NEAR(count, 500, 80) << second;
}

TEST(TraceWorkloadTest, ScalingKeepsPrefixesAndFits) {
  const std::vector<TraceEntry> entries = {Entry(0, 120'000, 500, std::vector<uint64_t>(235, 5)),
                                           Entry(1, 700, 1, {5, 6}), Entry(2, 513, 0, {5, 6})};
  for (const int64_t context : {64, 2048, 2304, 8192, 200'000}) {
    TraceSettings settings;
    settings.block_tokens = FittingBlockTokens(entries, context);
    EXPECT_LE(settings.block_tokens, kTraceBlockTokens);
    if (settings.block_tokens >= 16) {
      EXPECT_EQ(settings.block_tokens % 16, 0);
    }
    const std::unique_ptr<Workload> workload = MakeTrace(entries, settings);
    const Turn longest = workload->Next()->turns[0];
    // 64 tokens can't hold 235 blocks of even one token each.
    if (context >= 2048) {
      EXPECT_LE(TokensIn(longest.segments) + longest.output_tokens, context);
    }
    const std::vector<int32_t> a = Tokens(workload->Next()->turns[0], 0);
    const Turn last = workload->Next()->turns[0];
    const std::vector<int32_t> b = Tokens(last, 0);
    EXPECT_GE(last.output_tokens, 1) << "a request must ask for something";
    ASSERT_GT(a.size(), static_cast<size_t>(settings.block_tokens));
    const size_t shared = std::min(a.size(), b.size());
    EXPECT_TRUE(std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shared), b.begin()));
  }
}

}  // namespace
}  // namespace baton::lab::bench
