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

TEST(RanksMemoryTest, RankZeroAnnouncesAndEachPieceIsItsOwners) {
  baton::testing::FarMemory memories[2];
  const kv::KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 8};
  auto first = kv::KvStore::Create(layout, 1, memories[0]);
  auto second = kv::KvStore::Create(layout, 1, memories[1]);
  ASSERT_TRUE(first.ok() && second.ok());
  RanksMemory all({&*first, &*second});
  memories[1].Announce(5);
  EXPECT_EQ(all.announced(), 0);
  memories[0].Announce(4);
  EXPECT_EQ(all.announced(), 4);
  first->block(BlockId(0))[3] = std::byte{1};
  second->block(BlockId(0))[3] = std::byte{2};
  std::byte out[32] = {};
  const device::Memory::Piece pieces[] = {{second->block(BlockId(0)), out, 16},
                                          {first->block(BlockId(0)), out + 16, 16}};
  ASSERT_TRUE(all.DownloadMarked(4, pieces).ok());
  EXPECT_EQ(out[3], std::byte{2});
  EXPECT_EQ(out[19], std::byte{1});
  EXPECT_EQ(memories[0].downloaded_after(), 4);
  EXPECT_EQ(memories[1].downloaded_after(), 4);
  // A rank without a piece is not asked.
  ASSERT_TRUE(all.DownloadMarked(6, std::span(pieces).last(1)).ok());
  EXPECT_EQ(memories[1].downloaded_after(), 4);
}

}  // namespace
}  // namespace baton::engine
