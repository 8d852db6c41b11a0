#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "engine/kv/index/block_pool.h"

namespace baton::kv {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

BlockHash TenantRoot(const char* salt) { return RootHash("model", TenantSalt(salt)); }

std::vector<BlockHash> PromptOf(const char* salt, int64_t blocks, int32_t prompt) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < blocks * kBlockTokens; ++i)
    tokens.emplace_back(prompt * 1000 + static_cast<int32_t>(i));
  return HashChain(TenantRoot(salt), tokens);
}

class LeaseTest : public testing::Test {
 protected:
  // Serves a prompt with a mark at its end, as a worker does. Returns the blocks that are leased.
  int64_t ServeMarked(BlockPool& pool, const char* salt, const std::vector<BlockHash>& chain,
                      LeaseClass lease_class, absl::Time now) {
    pool.Advance(now);
    std::vector<BlockId> blocks = Compute(pool, chain);
    const int64_t leased = pool.Lease(blocks, 0, lease_class, TenantRoot(salt), now);
    pool.Release(blocks);
    pool.CheckConservation();
    return leased;
  }
  void Serve(BlockPool& pool, const std::vector<BlockHash>& chain) { pool.Release(Compute(pool, chain)); }
  // Has the pool evict so many blocks.
  void Evict(BlockPool& pool, int64_t blocks) {
    auto taken = pool.Allocate(pool.counts().free + blocks);
    BATON_CHECK(taken.ok()) << taken.status();
    pool.Release(*taken);
    pool.CheckConservation();
  }

 private:
  static std::vector<BlockId> Compute(BlockPool& pool, const std::vector<BlockHash>& chain) {
    std::vector<BlockId> blocks = pool.AcquirePrefix(chain);
    auto rest = pool.Allocate(std::ssize(chain) - std::ssize(blocks));
    BATON_CHECK(rest.ok()) << rest.status();
    blocks.insert(blocks.end(), rest->begin(), rest->end());
    for (size_t i = 0; i < blocks.size(); ++i) pool.Publish(blocks[i], chain[i]);
    return blocks;
  }
};

TEST_F(LeaseTest, OfARunIsToldWhatIsLeftByClassTheStrongestFirst) {
  BlockPool pool(32);
  const auto chain = PromptOf("t", 8, 1);
  ServeMarked(pool, "t", std::vector(chain.begin(), chain.begin() + 6), LeaseClass::k5m, kStart);
  ServeMarked(pool, "t", std::vector(chain.begin(), chain.begin() + 3), LeaseClass::k1h, kStart);
  Serve(pool, chain);
  pool.Advance(kStart + absl::Minutes(2));
  const std::vector<BlockId> run = pool.AcquirePrefix(chain);  // a use: both are renewed
  ASSERT_EQ(run.size(), 8u);
  EXPECT_THAT(
      pool.LeasesOf(run),
      testing::ElementsAre(HeldLease{.lease_class = LeaseClass::k1h, .blocks = 3, .left = absl::Hours(1)},
                           HeldLease{.lease_class = LeaseClass::k5m, .blocks = 6, .left = absl::Minutes(5)}));
  pool.Advance(kStart + absl::Minutes(6));
  EXPECT_THAT(
      pool.LeasesOf(std::span(run).subspan(2)),
      testing::ElementsAre(HeldLease{.lease_class = LeaseClass::k1h, .blocks = 1, .left = absl::Minutes(56)},
                           HeldLease{.lease_class = LeaseClass::k5m, .blocks = 4, .left = absl::Minutes(1)}));
  pool.Advance(kStart + absl::Minutes(7));
  EXPECT_EQ(pool.LeasesOf(run).size(), 1u) << "what has passed is not told, in use as it may be";
  pool.Release(run);
  EXPECT_TRUE(pool.LeasesOf({}).empty());
}

TEST_F(LeaseTest, UnleasedGoFirstThenFiveMinutesThenAnHour) {
  for (const Eviction eviction : {Eviction::kForecast, Eviction::kLeastRecentlyUsed}) {
    BlockPool pool(16, eviction);
    const auto hour = PromptOf("t", 4, 1), minutes = PromptOf("t", 4, 2), plain = PromptOf("t", 8, 3);
    EXPECT_EQ(ServeMarked(pool, "t", hour, LeaseClass::k1h, kStart), 4);
    EXPECT_EQ(ServeMarked(pool, "t", minutes, LeaseClass::k5m, kStart), 4);
    Serve(pool, plain);
    EXPECT_EQ(pool.counts().leased, 8);
    Evict(pool, 8);
    EXPECT_EQ(pool.MatchPrefix(plain), 0);
    EXPECT_EQ(pool.MatchPrefix(minutes), 4);
    Evict(pool, 3);
    EXPECT_EQ(pool.MatchPrefix(minutes), 1) << "the tail goes first";
    EXPECT_EQ(pool.MatchPrefix(hour), 4);
    Evict(pool, 5);
    EXPECT_EQ(pool.MatchPrefix(hour), 0) << "a lease never refuses a block";
    EXPECT_EQ(pool.counts().leased, 0);
    EXPECT_EQ(pool.lease_counts(LeaseClass::k5m).broken, 4);
    EXPECT_EQ(pool.lease_counts(LeaseClass::k1h).broken, 4);
  }
}

TEST_F(LeaseTest, NearestToItsEndGoesFirstAndAHitRenews) {
  BlockPool pool(16);
  const auto a = PromptOf("t", 4, 1), b = PromptOf("t", 4, 2);
  ServeMarked(pool, "t", a, LeaseClass::k5m, kStart);
  ServeMarked(pool, "t", b, LeaseClass::k5m, kStart + absl::Minutes(1));
  pool.Advance(kStart + absl::Minutes(2));
  pool.Release(pool.AcquirePrefix(a));  // by a prompt without marks
  EXPECT_EQ(pool.lease_counts(LeaseClass::k5m).renewed, 4);
  Evict(pool, 4);
  EXPECT_EQ(pool.MatchPrefix(b), 0);
  EXPECT_EQ(pool.MatchPrefix(a), 4);
  pool.Advance(kStart + absl::Minutes(7) - absl::Seconds(1));
  EXPECT_EQ(pool.counts().leased, 4);
  pool.Advance(kStart + absl::Minutes(7));
  EXPECT_EQ(pool.counts().leased, 0);
  EXPECT_EQ(pool.counts().cached, 4) << "its end evicts nothing";
  EXPECT_EQ(pool.lease_counts(LeaseClass::k5m).expired_unused, 0) << "they were used";
}

TEST_F(LeaseTest, AfterItsEndABlockIsAsAnyOther) {
  BlockPool pool(8, Eviction::kLeastRecentlyUsed);
  const auto leased = PromptOf("t", 4, 1), later = PromptOf("t", 4, 2);
  ServeMarked(pool, "t", leased, LeaseClass::k5m, kStart);
  pool.Advance(kStart + absl::Minutes(5));
  EXPECT_EQ(pool.lease_counts(LeaseClass::k5m).expired_unused, 4);
  Serve(pool, later);
  Evict(pool, 4);
  EXPECT_EQ(pool.MatchPrefix(leased), 0);
  EXPECT_EQ(pool.MatchPrefix(later), 4);
}

TEST_F(LeaseTest, TheStrongerClassWins) {
  BlockPool pool(16);
  const auto chain = PromptOf("t", 4, 1);
  ServeMarked(pool, "t", chain, LeaseClass::k5m, kStart);
  ServeMarked(pool, "t", chain, LeaseClass::k1h, kStart);
  ServeMarked(pool, "t", chain, LeaseClass::k5m, kStart + absl::Minutes(1));
  pool.Advance(kStart + absl::Minutes(60));
  EXPECT_EQ(pool.counts().leased, 4) << "the last hit renewed the hour";
  pool.Advance(kStart + absl::Minutes(61));
  EXPECT_EQ(pool.counts().leased, 0);
}

TEST_F(LeaseTest, TheLongestPrefixThatFitsTheShareIsGranted) {
  BlockPool pool(16);
  pool.SetLeaseShare(0.25);
  EXPECT_EQ(ServeMarked(pool, "t", PromptOf("t", 6, 1), LeaseClass::k1h, kStart), 4);
  EXPECT_EQ(ServeMarked(pool, "t", PromptOf("t", 6, 2), LeaseClass::k1h, kStart), 0);
  Evict(pool, 8);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("t", 6, 1)), 4);
  pool.SetLeaseShare(0);
  EXPECT_EQ(ServeMarked(pool, "u", PromptOf("u", 6, 2), LeaseClass::k1h, kStart), 0);
}

TEST_F(LeaseTest, ATenantBorrowsWhatOthersLeaveAndGivesItBack) {
  BlockPool pool(16);
  EXPECT_EQ(ServeMarked(pool, "a", PromptOf("a", 8, 1), LeaseClass::k1h, kStart), 8)
      << "the others' part too";
  EXPECT_EQ(ServeMarked(pool, "b", PromptOf("b", 6, 1), LeaseClass::k5m, kStart), 4) << "its own half";
  EXPECT_EQ(pool.counts().leased, 8);
  EXPECT_EQ(pool.lease_counts(LeaseClass::k1h).broken, 4);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("a", 8, 1)), 8) << "what was given back is still cached";
  EXPECT_EQ(ServeMarked(pool, "a", PromptOf("a", 2, 2), LeaseClass::k1h, kStart), 0) << "it has its half";
  Evict(pool, 8);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("a", 8, 1)), 4);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("b", 6, 1)), 4);
}

// A tenant that marks everything for an hour can't have the marks of another evicted for it.
TEST_F(LeaseTest, WhoHasMoreThanItsPartIsEvictedFromFirst) {
  BlockPool pool(16);  // of which 8 may be leased
  EXPECT_EQ(ServeMarked(pool, "b", PromptOf("b", 2, 1), LeaseClass::k5m, kStart), 2);
  EXPECT_EQ(ServeMarked(pool, "a", PromptOf("a", 6, 1), LeaseClass::k1h, kStart), 6);
  Evict(pool, 2);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("b", 2, 1)), 2);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("a", 6, 1)), 4);
  EXPECT_EQ(pool.lease_counts(LeaseClass::k1h).broken, 2);
  Evict(pool, 1);
  EXPECT_EQ(pool.MatchPrefix(PromptOf("b", 2, 1)), 1)
      << "each has its part at most, and five minutes go first";
}

TEST_F(LeaseTest, ABlockInUseKeepsItsLeaseUntilItIsReleased) {
  BlockPool pool(8);
  const auto chain = PromptOf("t", 2, 1);
  ServeMarked(pool, "t", chain, LeaseClass::k5m, kStart);
  const auto held = pool.AcquirePrefix(chain);
  EXPECT_EQ(pool.counts().leased, 0) << "of the cached ones";
  pool.Advance(kStart + absl::Hours(2));
  pool.Release(held);
  EXPECT_EQ(pool.counts().leased, 0);
  EXPECT_EQ(pool.counts().cached, 2);
  pool.CheckConservation();
}

}  // namespace
}  // namespace baton::kv
