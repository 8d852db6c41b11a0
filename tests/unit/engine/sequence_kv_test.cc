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

}  // namespace
}  // namespace baton::engine
