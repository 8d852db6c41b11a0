#include "protocol/prompt_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace baton::kv {
namespace {

constexpr uint64_t kSeed = 20261125;

BlockHash Root(const char* tenant = "tenant") { return RootHash("model", TenantSalt(tenant)); }

std::vector<TokenId> Tokens(int count, int first = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.emplace_back(first + i);
  return tokens;
}

// The expected values are Python's, with root and child of block_hash_test.cc:
//   r = root(b"model", b"tenant"); h = lambda b: hashlib.sha256(b).digest()[:16]
//   c = h(b"baton/kv/chunk/1" + r)
//   fold = lambda p, *ends: h(b"baton/kv/approximate/1" + p + struct.pack("<%dq" % len(ends), *ends))
//   a = child(r, range(16)); b = child(fold(a, 20, 60), range(16, 32)); d = child(b, range(32, 48))
//   for x in c, a, b, d: print(x.hex())
TEST(PromptChainTest, MatchesPythonsHashlib) {
  EXPECT_EQ(CanonicalRoot(Root()).ToHex(), "5dcde8a20fb109f16683bc28becd0b63");
  const auto chain = PromptChain(Root(), {{20, 60}}).Hashes(Tokens(48));
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0].ToHex(), "3369bac170ec7071442d34fa7bf38b27");
  EXPECT_EQ(chain[1].ToHex(), "a671e75ba74c99ecb9c6f8e41f55e189");
  EXPECT_EQ(chain[2].ToHex(), "33d3056d4bb1f4fd680e77dcc36eca33");
}

TEST(PromptChainTest, WithoutSpansItIsTheUsualChain) {
  const auto tokens = Tokens(100);
  EXPECT_EQ(PromptChain(Root()).Hashes(tokens), HashChain(Root(), tokens));
}

TEST(PromptChainTest, BlockByBlockItIsTheSame) {
  const PromptChain rule(Root(), {{5, 40}, {40, 77}, {90, 130}});
  const auto tokens = Tokens(160);
  const auto chain = rule.Hashes(tokens);
  BlockHash parent = rule.root();
  for (size_t i = 0; i < chain.size(); ++i) {
    parent = rule.Child(parent, static_cast<int64_t>(i), std::span(tokens).subspan(16 * i, 16));
    EXPECT_EQ(parent, chain[i]) << i;
  }
}

// A block's KV depends on the tokens up to its end, and on which of them are in which spans. Prompts that
// differ in these have other hashes, and an exact prompt shares nothing from the first span on.
TEST(PromptChainTest, BlocksAreFoundOnlyByPromptsWithTheSameTokensAndSpans) {
  std::mt19937_64 random(kSeed);
  SCOPED_TRACE(kSeed);
  const auto up_to = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  // The content behind each hash: the tokens up to the block's end, and the spans that begin before it.
  absl::flat_hash_map<BlockHash, std::pair<std::vector<TokenId>, std::vector<ReusableSpan>>> known;
  int shared = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<TokenId> tokens = Tokens(200);
    if (up_to(3) == 0) tokens[static_cast<size_t>(up_to(200))] = TokenId(777);
    std::vector<ReusableSpan> spans;
    for (int64_t at = 16 * up_to(3) + up_to(2); at + 34 < 200 && up_to(4) != 0;) {
      const int64_t end = std::min<int64_t>(199, at + 32 + 16 * up_to(2));
      spans.push_back({at, end});
      at = end + 8 * up_to(3);
    }
    ASSERT_TRUE(CheckReusable(spans, 200, "spans").ok());
    const auto chain = PromptChain(Root(), spans).Hashes(tokens);
    const auto exact = HashChain(Root(), tokens);
    const int64_t first = spans.empty() ? 200 : spans.front().begin;
    for (int64_t i = 0; i < std::ssize(chain); ++i) {
      const int64_t end = (i + 1) * kBlockTokens;
      EXPECT_EQ(chain[static_cast<size_t>(i)] == exact[static_cast<size_t>(i)], end <= first) << i;
      std::vector<ReusableSpan> begun;
      for (const ReusableSpan& span : spans) {
        if (span.begin < end) begun.push_back(span);
      }
      const auto what = std::pair(std::vector(tokens.begin(), tokens.begin() + end), begun);
      const auto [found, is_new] = known.try_emplace(chain[static_cast<size_t>(i)], what);
      EXPECT_EQ(found->second, what) << "one hash for two different blocks";
      shared += is_new ? 0 : 1;
    }
  }
  EXPECT_GT(shared, 100) << "nothing was ever shared: the test shows nothing";
}

TEST(PromptChainTest, CanonicalBlocksAreNobodysPrefix) {
  const auto tokens = Tokens(160);
  absl::flat_hash_set<BlockHash> all;
  size_t count = 0;
  for (const char* tenant : {"a", "b"}) {
    for (const auto& chain : {HashChain(Root(tenant), tokens), HashChain(CanonicalRoot(Root(tenant)), tokens),
                              HashChain(CanonicalRoot(CanonicalRoot(Root(tenant))), tokens)}) {
      for (const BlockHash& hash : chain) all.insert(hash);
      count += chain.size();
    }
  }
  EXPECT_EQ(all.size(), count);
}

TEST(ReusableSpanTest, LandsWhatIsInFullCanonicalBlocksBehindTheFirstSixteenTokens) {
  // At the start of a prompt the span is its canonical sequence.
  EXPECT_EQ(LandedPart({0, 32}), (ReusableSpan{16, 32}));
  EXPECT_EQ(LandedPart({0, 47}), (ReusableSpan{16, 32}));
  EXPECT_EQ(CanonicalPosition({0, 47}, 16), 16);
  // Elsewhere the prompt's first token stands before it.
  EXPECT_EQ(LandedPart({100, 132}), (ReusableSpan{116, 131}));
  EXPECT_EQ(LandedPart({100, 147}), (ReusableSpan{116, 147}));
  EXPECT_EQ(LandedPart({100, 148}), (ReusableSpan{116, 147}));
  EXPECT_EQ(CanonicalPosition({100, 132}, 116), 17);
  EXPECT_EQ(LandedTokens(std::vector<ReusableSpan>{{0, 32}, {100, 148}}), 16 + 31);
  const auto prompt = Tokens(200, 1000);
  const auto canonical = CanonicalTokens({100, 132}, prompt);
  ASSERT_EQ(canonical.size(), 32u);
  EXPECT_EQ(canonical[0], TokenId(1000));
  EXPECT_EQ(canonical[1], TokenId(1100));
  EXPECT_EQ(canonical[31], TokenId(1130));
  EXPECT_EQ(CanonicalTokens({0, 40}, prompt), std::vector(prompt.begin(), prompt.begin() + 32));
}

TEST(ReusableSpanTest, RefusesWhatIsShortOutOfOrderOrAtTheEnd) {
  const auto check = [](std::vector<ReusableSpan> spans) { return CheckReusable(spans, 200, "reusable"); };
  EXPECT_TRUE(check({}).ok());
  EXPECT_TRUE(check({{0, 32}, {32, 64}, {100, 199}}).ok());
  for (const auto& bad : std::vector<std::vector<ReusableSpan>>{{{0, 31}},
                                                                {{100, 200}},
                                                                {{100, 300}},
                                                                {{-1, 40}},
                                                                {{60, 20}},
                                                                {{40, 80}, {0, 40}},
                                                                {{0, 40}, {39, 80}}}) {
    EXPECT_EQ(check(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_NE(std::string(check({{0, 40}, {39, 80}}).message()).find("reusable[1]"), std::string::npos);
  std::vector<ReusableSpan> many;
  for (int64_t i = 0; i < kMaxReusableSpans + 1; ++i) many.push_back({32 * i, 32 * i + 32});
  EXPECT_EQ(CheckReusable(many, 100000, "reusable").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::kv
