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

}  // namespace
}  // namespace baton::engine
