// Copies and fences of a group's joint store reach the ranks' own memories.
#include "engine/ranks_memory.h"

#include <gtest/gtest.h>

#include "tests/fakes/far_memory.h"

namespace baton::engine {
namespace {

TEST(RanksMemoryTest, AFenceIsEveryRanks) {
  device::FarMemory memories[2];
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
  device::FarMemory memories[2];
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
  auto outbound = all.MakeOutbound(64);
  ASSERT_TRUE(outbound.ok()) << outbound.status();
  std::byte out[32] = {};
  const device::Outbound::Piece pieces[] = {{second->block(BlockId(0)), 0, 16},
                                            {first->block(BlockId(0)), 16, 16}};
  EXPECT_EQ((*outbound)->Gather(4, pieces), 1u);
  // A rank without a piece counts on.
  EXPECT_EQ((*outbound)->Gather(5, std::span(pieces).last(1)), 2u);
  EXPECT_EQ(memories[0].gathered_after(), 5);
  EXPECT_EQ(memories[1].gathered_after(), 5);
  // The source no longer has the gathered bytes.
  first->block(BlockId(0))[3] = second->block(BlockId(0))[3] = std::byte{9};
  (*outbound)->Take(1, out);
  EXPECT_EQ(out[3], std::byte{2});
  EXPECT_EQ(out[19], std::byte{1});
  out[19] = std::byte{0};
  (*outbound)->Take(2, out);
  EXPECT_EQ(out[3], std::byte{2});
  EXPECT_EQ(out[19], std::byte{1});
}

TEST(RanksMemoryTest, PiecesArriveWhereTheyLie) {
  device::FarMemory memories[2];
  const kv::KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 8};
  auto first = kv::KvStore::Create(layout, 1, memories[0]);
  auto second = kv::KvStore::Create(layout, 1, memories[1]);
  ASSERT_TRUE(first.ok() && second.ok());
  RanksMemory all({&*first, &*second});
  std::byte in[32] = {};
  in[0] = std::byte{1};
  in[16] = std::byte{2};
  const device::Memory::Piece pieces[] = {{second->block(BlockId(0)), 0, 16},
                                          {first->block(BlockId(0)), 16, 16}};
  ASSERT_TRUE(all.UploadPieces(in, pieces).ok());
  EXPECT_EQ(second->block(BlockId(0))[0], std::byte{1});
  EXPECT_EQ(first->block(BlockId(0))[0], std::byte{2});
}

}  // namespace
}  // namespace baton::engine
