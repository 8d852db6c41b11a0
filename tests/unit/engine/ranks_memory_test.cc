// Copies and fences of a group's joint store reach the ranks' own memories.
#include "common/engine/ranks_memory.h"

#include <gtest/gtest.h>

#include "tests/fakes/far_memory.h"

namespace baton::engine {
namespace {

TEST(RanksMemoryTest, AFenceIsEveryRanks) {
  baton::testing::FarMemory memories[2];
  const kv::KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 8};
  auto first = kv::KvStore::Create(layout, 1, memories[0]);
  auto second = kv::KvStore::Create(layout, 1, memories[1]);
  ASSERT_TRUE(first.ok() && second.ok());
  RanksMemory all({&*first, &*second});
  all.Fence();
  EXPECT_EQ(memories[0].fences(), 1);
  EXPECT_EQ(memories[1].fences(), 1);
}

TEST(RanksMemoryTest, TheMarksNumberIsRankZerosAndTheCopyIsTheOwners) {
  baton::testing::FarMemory memories[2];
  const kv::KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 8};
  auto first = kv::KvStore::Create(layout, 1, memories[0]);
  auto second = kv::KvStore::Create(layout, 1, memories[1]);
  ASSERT_TRUE(first.ok() && second.ok());
  RanksMemory all({&*first, &*second});
  EXPECT_EQ(memories[0].Mark(), 1);
  EXPECT_EQ(memories[1].Mark(), 1);
  EXPECT_EQ(memories[1].Mark(), 2);  // ahead
  ASSERT_EQ(all.marked(), 1);
  std::byte out[16];
  ASSERT_TRUE(all.DownloadAfter(all.marked(), second->block(BlockId(0)), out, sizeof out).ok());
  EXPECT_EQ(memories[0].downloaded_after(), 0);
  EXPECT_EQ(memories[1].downloaded_after(), 1);
}

}  // namespace
}  // namespace baton::engine
