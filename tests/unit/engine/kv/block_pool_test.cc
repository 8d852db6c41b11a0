#include "engine/kv/index/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/base/check.h"
#include "tests/fuzz/block_pool_operations.h"

namespace baton::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<BlockHash> Chain(int blocks, int first_token = 0, const char* salt = "tenant") {
  std::vector<TokenId> tokens;
  for (int i = 0; i < blocks * kBlockTokens; ++i) tokens.push_back(TokenId(first_token + i));
  return HashChain(RootHash("model", TenantSalt(salt)), tokens);
}

void ExpectCounts(const BlockPool& pool, int64_t free, int64_t held, int64_t cached) {
  const BlockPool::Counts counts = pool.counts();
  EXPECT_EQ(counts.free, free);
  EXPECT_EQ(counts.held, held);
  EXPECT_EQ(counts.cached, cached);
  EXPECT_EQ(counts.total, free + held + cached);
  EXPECT_EQ(pool.available(), free + cached);
  pool.CheckConservation();
}

// Takes blocks for `chain` and publishes them; the caller holds them.
std::vector<BlockId> Fill(BlockPool& pool, std::span<const BlockHash> chain) {
  const auto blocks = pool.Allocate(std::ssize(chain));
  BATON_CHECK(blocks.ok()) << blocks.status();
  for (size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(pool.Publish((*blocks)[i], chain[i]), (*blocks)[i]);
  return *blocks;
}

TEST(BlockPoolTest, AllocateGivesDistinctBlocksOrNone) {
  BlockPool pool(4);
  const auto blocks = pool.Allocate(3);
  ASSERT_TRUE(blocks.ok());
  EXPECT_THAT(*blocks, UnorderedElementsAre(BlockId(0), BlockId(1), BlockId(2)));
  ExpectCounts(pool, 1, 3, 0);
  const auto refused = pool.Allocate(2);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("2 KV blocks wanted, 1 can be had"));
  ExpectCounts(pool, 1, 3, 0);
  EXPECT_TRUE(pool.Allocate(0)->empty());
  pool.Release(*blocks);
  ExpectCounts(pool, 4, 0, 0);
}

TEST(BlockPoolTest, EveryGrantHasANewGeneration) {
  BlockPool pool(1);
  EXPECT_EQ(pool.generation(BlockId(0)), Generation(0));
  for (uint32_t round = 1; round <= 3; ++round) {
    const auto blocks = pool.Allocate(1);
    EXPECT_EQ(pool.generation(BlockId(0)), Generation(round));
    pool.Retain(BlockId(0));
    EXPECT_EQ(pool.generation(BlockId(0)), Generation(round));  // a reference is no grant
    pool.Release(*blocks);
    pool.Release(*blocks);
  }
}

TEST(BlockPoolTest, ReferencesAreCountedPerHolder) {
  BlockPool pool(2);
  const auto blocks = Fill(pool, Chain(1));
  pool.Retain(blocks[0]);
  EXPECT_EQ(pool.AcquirePrefix(Chain(2)), blocks);
  EXPECT_EQ(pool.references(blocks[0]), 3);
  pool.Release(blocks);
  pool.Release(blocks);
  ExpectCounts(pool, 1, 1, 0);
  pool.Release(blocks);
  ExpectCounts(pool, 1, 0, 1);
}

TEST(BlockPoolTest, PublishedBlocksOutliveTheirHolderAndOthersDoNot) {
  BlockPool pool(4);
  const auto chain = Chain(3);
  const auto blocks = Fill(pool, std::span(chain).first(2));
  const auto tail = pool.Allocate(1);  // the unfinished last block of a sequence
  EXPECT_EQ(pool.hash(blocks[1]), chain[1]);
  EXPECT_EQ(pool.hash(tail->front()), std::nullopt);
  pool.Release(*tail);
  pool.Release(blocks);
  ExpectCounts(pool, 2, 0, 2);
  EXPECT_EQ(pool.MatchPrefix(chain), 2);
  ExpectCounts(pool, 2, 0, 2);
  EXPECT_EQ(pool.AcquirePrefix(chain), blocks);
  ExpectCounts(pool, 2, 2, 0);
}

TEST(BlockPoolTest, AnotherSaltNeverHits) {
  BlockPool pool(4);
  pool.Release(Fill(pool, Chain(4, 0, "tenant")));
  EXPECT_EQ(pool.MatchPrefix(Chain(4, 0, "tenant")), 4);
  EXPECT_EQ(pool.MatchPrefix(Chain(4, 0, "other")), 0);
  EXPECT_THAT(pool.AcquirePrefix(Chain(4, 0, "other")), IsEmpty());
  EXPECT_EQ(pool.MatchPrefix(Chain(4, 0, "")), 0);
}

TEST(BlockPoolTest, ChainIsEvictedFromItsTail) {
  BlockPool pool(4);
  const auto chain = Chain(4);
  const auto blocks = Fill(pool, chain);
  pool.Release(blocks);
  for (int left = 3; left >= 0; --left) {
    const auto taken = pool.Allocate(1);
    ASSERT_TRUE(taken.ok());
    EXPECT_THAT(*taken, ElementsAre(blocks[left]));
    EXPECT_EQ(pool.MatchPrefix(chain), left);
  }
  ExpectCounts(pool, 0, 4, 0);
}

TEST(BlockPoolTest, LeastRecentlyUsedGoesFirst) {
  BlockPool pool(4);
  const auto first = Chain(2, 0), second = Chain(2, 1000);
  const auto first_blocks = Fill(pool, first);
  const auto second_blocks = Fill(pool, second);
  pool.Release(first_blocks);
  pool.Release(second_blocks);
  pool.Release(pool.AcquirePrefix(first));  // used again: now the second is older
  EXPECT_EQ(pool.MatchPrefix(second), 2);   // a look is no use
  ASSERT_TRUE(pool.Allocate(2).ok());
  EXPECT_EQ(pool.MatchPrefix(first), 2);
  EXPECT_EQ(pool.MatchPrefix(second), 0);
}

TEST(BlockPoolTest, FreeBlocksGoBeforeCachedOnesAndHeldOnesNever) {
  BlockPool pool(3);
  const auto held = Fill(pool, Chain(1, 0));
  pool.Release(Fill(pool, Chain(1, 1000)));
  ASSERT_TRUE(pool.Allocate(1).ok());
  EXPECT_EQ(pool.MatchPrefix(Chain(1, 1000)), 1);
  ASSERT_TRUE(pool.Allocate(1).ok());
  EXPECT_EQ(pool.MatchPrefix(Chain(1, 1000)), 0);
  EXPECT_EQ(pool.MatchPrefix(Chain(1, 0)), 1);
  EXPECT_FALSE(pool.Allocate(1).ok());
}

// A hole in a chain hides what follows, and filling the hole brings it back: blocks are what their hash says.
TEST(BlockPoolTest, HoleInAChainEndsTheMatchUntilItIsFilled) {
  BlockPool pool(4, Eviction::kLeastRecentlyUsed);
  const auto chain = Chain(3);
  const auto blocks = Fill(pool, chain);
  // The middle is released by itself, so that it is the oldest.
  pool.Release(std::span(blocks).subspan(1, 1));
  pool.Release(std::span(blocks).subspan(2, 1));
  pool.Release(std::span(blocks).subspan(0, 1));
  ASSERT_EQ(pool.MatchPrefix(chain), 3);
  const auto taken = pool.Allocate(2);  // the free one and the middle
  ASSERT_TRUE(taken.ok());
  EXPECT_THAT(*taken, UnorderedElementsAre(BlockId(3), blocks[1]));
  EXPECT_EQ(pool.MatchPrefix(chain), 1);
  const auto run = pool.AcquirePrefix(chain);
  EXPECT_THAT(run, ElementsAre(blocks[0]));
  EXPECT_EQ(pool.Publish(taken->front(), chain[1]), taken->front());
  EXPECT_EQ(pool.MatchPrefix(chain), 3);
  EXPECT_THAT(pool.AcquirePrefix(chain), ElementsAre(blocks[0], taken->front(), blocks[2]));
  pool.CheckConservation();
}

TEST(BlockPoolTest, SecondCopyIsNotPublishedAndCanBeGivenUpForTheFirst) {
  BlockPool pool(2);
  const auto chain = Chain(1);
  pool.Release(Fill(pool, chain));
  const auto copy = pool.Allocate(1);
  ASSERT_TRUE(copy.ok());
  const BlockId first = pool.Publish(copy->front(), chain[0]);
  EXPECT_NE(first, copy->front());
  EXPECT_EQ(pool.hash(copy->front()), std::nullopt);
  EXPECT_EQ(pool.Publish(copy->front(), chain[0]), first);  // and again
  pool.Retain(first);
  pool.Release(*copy);
  ExpectCounts(pool, 1, 1, 0);
  EXPECT_EQ(pool.references(first), 1);
}

TEST(BlockPoolTest, ChangesAreTheNetDifference) {
  BlockPool pool(2, Eviction::kLeastRecentlyUsed);
  const auto a = Chain(1, 0), b = Chain(1, 1000), c = Chain(1, 2000);
  pool.Release(Fill(pool, a));
  pool.Release(Fill(pool, b));
  auto changes = pool.TakeChanges();
  EXPECT_FALSE(changes.reset);
  EXPECT_THAT(changes.stored, UnorderedElementsAre(a[0], b[0]));
  EXPECT_THAT(changes.evicted, IsEmpty());
  pool.Release(Fill(pool, c));  // evicts a
  pool.Release(Fill(pool, a));  // evicts b
  pool.Release(Fill(pool, b));  // evicts c
  changes = pool.TakeChanges();
  EXPECT_THAT(changes.stored, IsEmpty());
  EXPECT_THAT(changes.evicted, IsEmpty());
  pool.Release(Fill(pool, c));  // evicts a
  changes = pool.TakeChanges();
  EXPECT_THAT(changes.stored, ElementsAre(c[0]));
  EXPECT_THAT(changes.evicted, ElementsAre(a[0]));
  EXPECT_THAT(pool.Published(), UnorderedElementsAre(b[0], c[0]));
}

TEST(BlockPoolTest, ChangesThatNobodyTakesCollapseIntoAReset) {
  constexpr int64_t kTotal = BlockPool::kMaxPendingChanges + 2;
  BlockPool pool(kTotal);
  const auto chain = Chain(kTotal);
  const auto blocks = pool.Allocate(kTotal);
  ASSERT_TRUE(blocks.ok());
  for (size_t i = 0; i < BlockPool::kMaxPendingChanges; ++i) pool.Publish((*blocks)[i], chain[i]);
  auto changes = pool.TakeChanges();
  EXPECT_FALSE(changes.reset);
  EXPECT_EQ(changes.stored.size(), BlockPool::kMaxPendingChanges);

  pool.Release(*blocks);
  ASSERT_TRUE(pool.Allocate(kTotal).ok());
  for (size_t i = 0; i < blocks->size(); ++i) pool.Publish((*blocks)[i], chain[i]);
  changes = pool.TakeChanges();
  EXPECT_FALSE(changes.reset) << "all but two came back";
  EXPECT_THAT(changes.stored, UnorderedElementsAre(chain[kTotal - 2], chain[kTotal - 1]));

  pool.Release(*blocks);
  ASSERT_TRUE(pool.Allocate(kTotal).ok());  // evicts one more than may be pending
  changes = pool.TakeChanges();
  EXPECT_TRUE(changes.reset);
  EXPECT_THAT(changes.stored, IsEmpty());
  EXPECT_THAT(changes.evicted, IsEmpty());
  pool.Publish(blocks->front(), chain[0]);
  changes = pool.TakeChanges();
  EXPECT_FALSE(changes.reset);
  EXPECT_THAT(changes.stored, ElementsAre(chain[0]));
}

TEST(BlockPoolTest, TellsOfBlocksThatBecomeCachedAndOfThoseThatAreEvicted) {
  BlockPool pool(4);
  const auto chain = Chain(4);
  const BlockHash root = RootHash("model", TenantSalt("tenant"));
  std::vector<BlockPool::Cached> evicted;
  pool.TrackCached([&](const BlockPool::Cached& block) { evicted.push_back(block); });
  EXPECT_FALSE(pool.NextCached().has_value());
  const auto blocks = pool.Allocate(3);
  ASSERT_TRUE(blocks.ok());
  for (size_t i = 0; i < 3; ++i) pool.Publish((*blocks)[i], chain[i], root);
  EXPECT_FALSE(pool.NextCached().has_value()) << "they are in use";
  pool.Release(*blocks);
  // The head first, once each.
  for (size_t i = 0; i < 3; ++i) {
    const auto next = pool.NextCached();
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->hash, chain[i]);
    EXPECT_EQ(next->root, root);
    EXPECT_EQ(next->block, (*blocks)[i]);
    EXPECT_EQ(next->uses, 1);
    EXPECT_FALSE(next->leased);
    EXPECT_GT(next->reuse, 0);
    EXPECT_LT(next->reuse, 1);
  }
  EXPECT_FALSE(pool.HasNextCached());
  // Used again, they are told again, as used twice; one is evicted before anybody asks.
  const auto again = pool.AcquirePrefix(std::span(chain).first(3));
  pool.Release(again);
  EXPECT_TRUE(evicted.empty());
  ASSERT_TRUE(pool.Allocate(2).ok());
  ASSERT_EQ(evicted.size(), 1u);
  EXPECT_EQ(evicted[0].hash, chain[2]) << "the tail";
  EXPECT_EQ(evicted[0].uses, 2);
  EXPECT_EQ(pool.NextCached()->hash, chain[0]);
  EXPECT_EQ(pool.NextCached()->hash, chain[1]);
  EXPECT_FALSE(pool.NextCached().has_value());
  // A lease is told, and the last who tracks is the only one.
  const auto leased = pool.AcquirePrefix(std::span(chain).first(1));
  pool.Lease(leased, 0, LeaseClass::k5m, root, absl::UnixEpoch());
  pool.Release(leased);
  EXPECT_TRUE(pool.NextCached()->leased);
  pool.TrackCached({});
  ASSERT_TRUE(pool.Allocate(2).ok());
  EXPECT_EQ(evicted.size(), 1u);
}

TEST(BlockPoolDeathTest, OurOwnErrorsEndTheProcess) {
  BlockPool pool(2);
  const auto chain = Chain(2);
  const std::vector<BlockId> free = {BlockId(0)};
  EXPECT_DEATH(pool.Release(free), "no reference to release");
  EXPECT_DEATH(pool.Retain(BlockId(0)), "is free");
  EXPECT_DEATH(pool.Publish(BlockId(0), chain[0]), "published by nobody");
  EXPECT_DEATH(pool.generation(BlockId(2)), "block 2 of 2");
  const auto blocks = Fill(pool, std::span(chain).first(1));
  EXPECT_DEATH(pool.Publish(blocks[0], chain[1]), "already");
}

TEST(BlockPoolTest, AgreesWithTheModelOver100000RandomOperations) {
  int64_t done = 0;
  for (uint32_t seed = 1; done < 100'000; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(20'000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const auto run = RunBlockPoolOperations(bytes);
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status();
    done += *run;
  }
  RecordProperty("operations", std::to_string(done));
}

}  // namespace
}  // namespace baton::kv
