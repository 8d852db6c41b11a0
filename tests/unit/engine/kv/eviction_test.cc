#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"
#include "engine/kv/index/block_pool.h"
#include "tests/seed.h"

namespace baton::kv {
namespace {

std::vector<BlockHash> PromptBlocks(int64_t blocks, int32_t prompt) {
  const BlockHash root = RootHash("model", TenantSalt("tenant"));
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < blocks * kBlockTokens; ++i)
    tokens.emplace_back(prompt * 1000 + static_cast<int32_t>(i));
  return HashChain(root, tokens);
}

// Serves a prompt as a worker does. Returns the blocks found in the cache.
int64_t Serve(BlockPool& pool, const std::vector<BlockHash>& chain) {
  std::vector<BlockId> blocks = pool.AcquirePrefix(chain);
  const int64_t found = std::ssize(blocks);
  auto rest = pool.Allocate(std::ssize(chain) - found);
  EXPECT_TRUE(rest.ok());
  blocks.insert(blocks.end(), rest->begin(), rest->end());
  for (size_t i = 0; i < blocks.size(); ++i) pool.Publish(blocks[i], chain[i]);
  pool.Release(blocks);
  return found;
}

// A loop over a little more than fits: the oldest is always the one needed next, so by age alone nothing is
// ever found; by what was learnt, part of the loop stays.
int64_t FoundInALoop(Eviction eviction) {
  BlockPool pool(64, eviction);
  int64_t found = 0;
  for (int round = 0; round < 60; ++round) {
    for (int prompt = 0; prompt < 20; ++prompt) found += Serve(pool, PromptBlocks(4, prompt));
  }
  pool.CheckConservation();
  return found;
}

TEST(EvictionTest, KeepsPartOfALoopThatDoesNotFit) {
  EXPECT_EQ(FoundInALoop(Eviction::kLeastRecentlyUsed), 0);
  EXPECT_GT(FoundInALoop(Eviction::kForecast), 60 * 20 * 4 / 4) << "64 of 80 blocks fit";
}

TEST(EvictionTest, AChainGoesFromItsTail) {
  for (const Eviction eviction : {Eviction::kForecast, Eviction::kLeastRecentlyUsed}) {
    BlockPool pool(16, eviction);
    const auto first = PromptBlocks(8, 1);
    Serve(pool, first);
    for (int64_t more = 1; more <= 8; ++more) {
      ASSERT_TRUE(pool.Allocate(1).ok());
      EXPECT_EQ(pool.MatchPrefix(first), 8) << "free blocks go first";
    }
    for (int64_t left = 7; left >= 0; --left) {
      ASSERT_TRUE(pool.Allocate(1).ok());
      EXPECT_EQ(pool.MatchPrefix(first), left);
    }
    pool.CheckConservation();
  }
}

// Whatever happens, no count is off: random prompts with shared beginnings, some of them held for a while.
TEST(EvictionTest, ConservesBlocksUnderRandomPrompts) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  BlockPool pool(128);
  std::vector<std::vector<BlockId>> held;
  for (int i = 0; i < 20'000; ++i) {
    if (!held.empty() && (draw(2) == 0 || held.size() > 6)) {
      const auto at = static_cast<size_t>(draw(static_cast<int>(held.size())));
      pool.Release(held[at]);
      held.erase(held.begin() + static_cast<int64_t>(at));
      continue;
    }
    const auto chain = PromptBlocks(1 + draw(16), draw(30));
    std::vector<BlockId> blocks = pool.AcquirePrefix(chain);
    auto rest = pool.Allocate(std::ssize(chain) - std::ssize(blocks));
    if (!rest.ok()) {
      pool.Release(blocks);
      continue;
    }
    blocks.insert(blocks.end(), rest->begin(), rest->end());
    for (size_t b = 0; b < blocks.size(); ++b) pool.Publish(blocks[b], chain[b]);
    held.push_back(std::move(blocks));
    if (i % 500 == 0) pool.CheckConservation();
  }
  for (const auto& blocks : held) pool.Release(blocks);
  pool.CheckConservation();
  EXPECT_EQ(pool.counts().held, 0);
}

TEST(ReuseForecastTest, RanksByAgeUntilItHasSeenMore) {
  const ReuseForecast forecast(1000);
  for (uint64_t age = 4; age < 2000; age *= 2) {
    EXPECT_GT(forecast.Worth(ReuseForecast::kNewCold, age), forecast.Worth(ReuseForecast::kNewCold, 2 * age));
  }
}

TEST(ReuseForecastTest, LearnsThatReuseComesLate) {
  ReuseForecast forecast(100);
  for (int i = 0; i < 20'000; ++i) {
    forecast.Entered(ReuseForecast::kUsedTwice);
    forecast.Reused(ReuseForecast::kUsedTwice, 300);
  }
  EXPECT_GT(forecast.Worth(ReuseForecast::kUsedTwice, 280), forecast.Worth(ReuseForecast::kUsedTwice, 2));
  EXPECT_GT(forecast.Worth(ReuseForecast::kUsedTwice, 280), forecast.Worth(ReuseForecast::kNewCold, 280));
}

}  // namespace
}  // namespace baton::kv
