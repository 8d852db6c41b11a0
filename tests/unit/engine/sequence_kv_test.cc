#include "engine/sequence_kv.h"

#include <gtest/gtest.h>

#include <thread>

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

// A request that finds the engine's mailbox full ends on the thread that brought it. ThreadSanitizer judges.
TEST(SequenceKvTest, OneWithoutBlocksMayEndBesideTheEngine) {
  kv::BlockPool pool(8);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  std::thread refused([&] {
    for (int i = 0; i < 1000; ++i) SequenceKv(pool, root).Release();
  });
  const std::vector<TokenId> tokens(4 * kBlockTokens, TokenId(5));
  for (int i = 0; i < 1000; ++i) {
    SequenceKv sequence(pool, root);
    ASSERT_TRUE(sequence.Reserve(tokens, 4 * kBlockTokens).ok());
    sequence.Computed(tokens, 4 * kBlockTokens);
  }
  refused.join();
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

TEST(SequenceKvTest, FetchedBlocksInheritWhatIsLeftOfTheirLeasesAndSoDoThoseBeforeThem) {
  kv::BlockPool pool(24);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  std::vector<TokenId> tokens;
  for (int i = 0; i < 8 * kBlockTokens; ++i) tokens.emplace_back(i);
  const absl::Time now = absl::UnixEpoch();
  pool.Advance(now);
  SequenceKv before(pool, root);  // has computed 2 blocks, without a lease
  ASSERT_TRUE(before.Reserve(std::span(tokens).first(2 * kBlockTokens), 2 * kBlockTokens).ok());
  before.Computed(tokens, 2 * kBlockTokens);
  before.Release();

  SequenceKv kv(pool, root);
  ASSERT_TRUE(kv.Reserve(tokens, std::ssize(tokens)).ok());
  ASSERT_EQ(kv.cached_tokens(), 2 * kBlockTokens);
  kv.Inherit(
      std::vector<kv::HeldLease>{{.lease_class = kv::LeaseClass::k1h, .blocks = 2, .left = absl::Minutes(10)},
                                 {.lease_class = kv::LeaseClass::k5m, .blocks = 4, .left = absl::Minutes(2)}},
      2, now);
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k1h).granted, 2) << "those that were here";
  for (int block = 3; block <= 7; ++block) kv.Computed(tokens, block * kBlockTokens);
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k1h).granted, 4);
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k5m).granted, 2);
  EXPECT_EQ(kv.leased_tokens(), 0) << "nothing is marked";
  kv.Release();
  EXPECT_EQ(pool.counts().leased, 6);
  pool.Advance(now + absl::Minutes(3));
  EXPECT_EQ(pool.counts().leased, 4);
  pool.Advance(now + absl::Minutes(9));
  EXPECT_EQ(pool.counts().leased, 4);
  pool.Advance(now + absl::Minutes(11));
  EXPECT_EQ(pool.counts().leased, 0);
  pool.CheckConservation();
}

TEST(SequenceKvTest, AnInheritedLeaseTakesNoMoreThanTheShareAndNothingFromOthersParts) {
  kv::BlockPool pool(16);  // 8 of them may have a lease
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  const kv::BlockHash other_root = kv::RootHash("model", kv::TenantSalt("other"));
  std::vector<TokenId> tokens;
  for (int i = 0; i < 8 * kBlockTokens; ++i) tokens.emplace_back(i);
  const absl::Time now = absl::UnixEpoch();
  SequenceKv other(pool, other_root);
  other.Lease({{.lease_class = kv::LeaseClass::k5m, .blocks = 4}}, now);
  ASSERT_TRUE(other.Reserve(std::span(tokens).first(4 * kBlockTokens), 4 * kBlockTokens).ok());
  other.Computed(tokens, 4 * kBlockTokens);
  other.Release();
  ASSERT_EQ(pool.counts().leased, 4);
  SequenceKv kv(pool, root);
  ASSERT_TRUE(kv.Reserve(tokens, std::ssize(tokens)).ok());
  kv.Inherit(
      std::vector<kv::HeldLease>{
          {.lease_class = kv::LeaseClass::k1h, .blocks = 8, .left = absl::Minutes(10)}},
      0, now);
  kv.Computed(tokens, std::ssize(tokens));
  kv.Release();
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k1h).granted, 4) << "its half";
  EXPECT_EQ(pool.lease_counts(kv::LeaseClass::k5m).broken, 0);
  EXPECT_EQ(pool.counts().leased, 8);
  pool.CheckConservation();
}

TEST(SequenceKvTest, BlocksOfRefusedDraftsGoBackAndTheirTokensWereNeverThere) {
  kv::BlockPool pool(8);
  const kv::BlockHash root = kv::RootHash("model", kv::TenantSalt("tenant"));
  std::vector<TokenId> tokens(kBlockTokens + 3, TokenId(5));
  SequenceKv kv(pool, root);
  ASSERT_TRUE(kv.Reserve(tokens, std::ssize(tokens)).ok());
  ASSERT_TRUE(kv.Grow(4 * kBlockTokens).ok());  // for drafted tokens
  kv.Computed(tokens, std::ssize(tokens));
  kv.Trim(std::ssize(tokens) + 1);
  EXPECT_EQ(pool.counts().held, 2);
  EXPECT_EQ(pool.counts().free, 6) << "nothing of them is cached";
  kv.Trim(std::ssize(tokens) + 1);
  EXPECT_EQ(pool.counts().held, 2);
  kv.Release();
  EXPECT_EQ(pool.counts().cached, 1);
  pool.CheckConservation();
}

}  // namespace
}  // namespace baton::engine
