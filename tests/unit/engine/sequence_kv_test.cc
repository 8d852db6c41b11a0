#include "common/engine/sequence_kv.h"

#include <gtest/gtest.h>

namespace baton::engine {
namespace {

TEST(SequenceKvTest, ABlockGivenUpForAnEqualOneStaysHeldUntilTheNextCall) {
  kv::BlockPool pool(8);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  const std::vector<TokenId> tokens(2 * kBlockTokens, TokenId(5));
  SequenceKv first(pool, root), second(pool, root);
  ASSERT_TRUE(first.Reserve(tokens, 2 * kBlockTokens).ok());
  ASSERT_TRUE(second.Reserve(tokens, 2 * kBlockTokens).ok());
  const BlockId own = second.blocks()[0];
  first.Computed(tokens, kBlockTokens);
  EXPECT_EQ(pool.counts().held, 4);
  second.Computed(tokens, kBlockTokens);
  EXPECT_EQ(second.blocks()[0], first.blocks()[0]);
  EXPECT_NE(second.blocks()[0], own);
  EXPECT_EQ(pool.counts().held, 4) << "a step under way may read the block that was replaced";
  second.Computed(tokens, kBlockTokens + 1);
  EXPECT_EQ(pool.counts().held, 3);
  second.Release();
  first.Release();
  EXPECT_EQ(pool.counts().held, 0);
  pool.CheckConservation();
}

TEST(SequenceKvTest, ReleaseGivesReplacedBlocksBackToo) {
  kv::BlockPool pool(8);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  const std::vector<TokenId> tokens(kBlockTokens, TokenId(5));
  SequenceKv first(pool, root), second(pool, root);
  ASSERT_TRUE(first.Reserve(tokens, kBlockTokens).ok());
  ASSERT_TRUE(second.Reserve(tokens, kBlockTokens).ok());
  first.Computed(tokens, kBlockTokens);
  second.Computed(tokens, kBlockTokens);
  second.Release();
  first.Release();
  EXPECT_EQ(pool.counts().held, 0);
  pool.CheckConservation();
}

TEST(SequenceKvTest, BlocksAreLeasedAsTheyAreFoundOrComputed) {
  kv::BlockPool pool(16);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  std::vector<TokenId> tokens;
  for (int i = 0; i < 6 * kBlockTokens; ++i) tokens.emplace_back(i);
  const absl::Time now = absl::UnixEpoch();
  SequenceKv first(pool, root);
  first.Lease(
      {{.lease_class = kv::LeaseClass::k1h, .blocks = 2}, {.lease_class = kv::LeaseClass::k5m, .blocks = 4}},
      now);
  ASSERT_TRUE(first.Reserve(tokens, std::ssize(tokens)).ok());
  EXPECT_EQ(first.leased_tokens(), 0);
  first.Computed(tokens, 3 * kBlockTokens + 5);
  EXPECT_EQ(first.leased_tokens(), 3 * kBlockTokens);
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k1h).granted, 2);
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k5m).granted, 1);
  first.Computed(tokens, std::ssize(tokens));
  EXPECT_EQ(first.leased_tokens(), 4 * kBlockTokens) << "the mark ends there";
  first.Release();
  EXPECT_EQ(pool.counts().leased, 4);

  SequenceKv second(pool, root);
  second.Lease({{.lease_class = kv::LeaseClass::k1h, .blocks = 6}}, now);
  ASSERT_TRUE(second.Reserve(tokens, std::ssize(tokens)).ok());
  EXPECT_EQ(second.leased_tokens(), 5 * kBlockTokens) << "all that was found";
  second.Computed(tokens, std::ssize(tokens));
  EXPECT_EQ(second.leased_tokens(), 6 * kBlockTokens);
  second.Release();
  EXPECT_EQ(pool.counts().leased, 6);
  pool.Advance(now + absl::Minutes(6));
  EXPECT_EQ(pool.counts().leased, 6) << "for an hour now";
  pool.CheckConservation();
}

TEST(SequenceKvTest, WhereTheShareIsUsedUpTheFirstBlocksAreLeased) {
  kv::BlockPool pool(8);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  std::vector<TokenId> tokens;
  for (int i = 0; i < 6 * kBlockTokens; ++i) tokens.emplace_back(i);
  SequenceKv kv(pool, root);
  kv.Lease({{.lease_class = kv::LeaseClass::k5m, .blocks = 6}}, absl::UnixEpoch());
  ASSERT_TRUE(kv.Reserve(tokens, std::ssize(tokens)).ok());
  for (int block = 1; block <= 6; ++block) kv.Computed(tokens, block * kBlockTokens);
  EXPECT_EQ(kv.leased_tokens(), 4 * kBlockTokens);
  kv.Release();
  EXPECT_EQ(kv.leased_tokens(), 0);
  EXPECT_EQ(pool.counts().leased, 4);
}

}  // namespace
}  // namespace baton::engine
