#include "engine/kv/store/kv_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

const KvLayout kLayout{.layers = 3,
                       .kv_heads = 2,
                       .head_dim = 8,
                       .key_dtype = tensor::DType::kF32,
                       .value_dtype = tensor::DType::kBF16};

TEST(KvLayoutTest, AddsUp) {
  // Keys: 2 heads x 8 x 16 tokens x 4 bytes; values the same in 2 bytes.
  EXPECT_EQ(kLayout.layer(0).key_bytes(), 1024);
  EXPECT_EQ(kLayout.layer(0).value_bytes(), 512);
  EXPECT_EQ(kLayout.layer(0).bytes(), 1536);
  EXPECT_EQ(kLayout.block_bytes(), 3 * 1536);
  EXPECT_EQ(kLayout.layer(0).key_offset(0), 0);
  EXPECT_EQ(kLayout.layer(1).key_offset(1), 1536 + 512);
  EXPECT_EQ(kLayout.layer(1).value_offset(0), 1536 + 1024);
  EXPECT_EQ(kLayout.layer(2).value_offset(1), 2 * 1536 + 1024 + 256);
  EXPECT_EQ(kLayout.layer(2).value_offset(1) + kLayout.layer(0).value_head_bytes(), kLayout.block_bytes());
}

// The first layer keeps float32 values, the last bfloat16 keys: 2048, 1536 and 1024 bytes.
TEST(KvLayoutTest, LayersMayDifferInPrecision) {
  KvLayout layout = kLayout;
  layout.exceptions = {{.layer = 0, .key_dtype = tensor::DType::kF32, .value_dtype = tensor::DType::kF32},
                       {.layer = 2, .key_dtype = tensor::DType::kBF16, .value_dtype = tensor::DType::kBF16}};
  EXPECT_NE(layout, kLayout);
  EXPECT_EQ(layout.layer(0).bytes(), 2048);
  EXPECT_EQ(layout.layer(0).value_offset(1), 1024 + 512);
  EXPECT_EQ(layout.layer(1).offset, 2048);
  EXPECT_EQ(layout.layer(1).value_offset(0), 2048 + 1024);
  EXPECT_EQ(layout.layer(2).offset, 2048 + 1536);
  EXPECT_EQ(layout.layer(2).value_offset(1), 2048 + 1536 + 512 + 256);
  EXPECT_EQ(layout.layers_bytes(1, 2), 1536 + 1024);
  EXPECT_EQ(layout.block_bytes(), 2048 + 1536 + 1024);

  KvStore store = KvStore::Create(layout, 2).value();
  EXPECT_EQ(store.block(BlockId(1)) - store.block(BlockId(0)), layout.block_bytes());
  EXPECT_EQ(store.layer(2).offset, 2048 + 1536);
  EXPECT_EQ(store.layers(BlockId(1), 1, 2).data(), store.block(BlockId(1)) + 2048);
  EXPECT_EQ(store.layers(BlockId(1), 1, 2).size(), 1536u + 1024);
}

// Ranks' heads lie side by side, keys before values, at the sizes of each layer.
TEST(KvLayoutTest, AJointStoreHasTheLayersOfItsShards) {
  KvLayout layout = kLayout;
  layout.exceptions = {{.layer = 1, .key_dtype = tensor::DType::kF32, .value_dtype = tensor::DType::kF32}};
  KvStore first = KvStore::Create(layout, 1).value(), second = KvStore::Create(layout, 1).value();
  KvStore joint = KvStore::Joint({&first, &second}, device::HostMemory());
  EXPECT_EQ(joint.layer(2).offset, 2 * (1536 + 2048));
  std::vector<std::span<std::byte>> pieces;
  joint.AppendPieces(BlockId(0), 1, 1, pieces);
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[0].data(), first.block(BlockId(0)) + 1536);
  for (const std::span<std::byte>& piece : pieces) EXPECT_EQ(piece.size(), 1024u);
  EXPECT_EQ(pieces[3].data(), second.block(BlockId(0)) + 1536 + 1024);
}

TEST(KvStoreTest, BlocksForRoundsDown) {
  EXPECT_EQ(KvStore::BlocksFor(kLayout, 0), 0);
  EXPECT_EQ(KvStore::BlocksFor(kLayout, 4607), 0);
  EXPECT_EQ(KvStore::BlocksFor(kLayout, 4608), 1);
  EXPECT_EQ(KvStore::BlocksFor(kLayout, 2 * 4608 + 1), 2);
}

TEST(KvStoreTest, BlocksAndLayersLieApartAndCoverTheStore) {
  constexpr int kBlocks = 700;  // more than a huge page
  auto store = KvStore::Create(kLayout, kBlocks);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(store->blocks(), kBlocks);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(store->block(BlockId(0))) % 64, 0u);
  for (uint32_t id = 0; id < kBlocks; ++id) {
    for (int64_t i = 0; i < kLayout.block_bytes(); ++i) ASSERT_EQ(store->block(BlockId(id))[i], std::byte{0});
    for (int layer = 0; layer < kLayout.layers; ++layer) {
      const auto bytes = store->layers(BlockId(id), layer, 1);
      ASSERT_EQ(bytes.size(), static_cast<size_t>(kLayout.layer(0).bytes()));
      std::memset(bytes.data(), static_cast<int>((id * 3 + layer) % 251), bytes.size());
    }
  }
  KvStore moved = *std::move(store);
  for (uint32_t id = 0; id < kBlocks; ++id) {
    const std::byte* block = moved.block(BlockId(id));
    for (int64_t i = 0; i < kLayout.block_bytes(); ++i) {
      ASSERT_EQ(static_cast<int>(block[i]), static_cast<int>((id * 3 + i / kLayout.layer(0).bytes()) % 251));
    }
  }
  EXPECT_EQ(moved.layers(BlockId(1), 1, 2).data(), moved.block(BlockId(1)) + kLayout.layer(0).bytes());
  EXPECT_EQ(moved.layers(BlockId(1), 1, 2).size(), static_cast<size_t>(2 * kLayout.layer(0).bytes()));
}

TEST(KvStoreTest, MemoryThatCantBeHadIsRefusedWithTheSum) {
  // 4,608 bytes x 2^40 blocks is more than an address space of 47 bits.
  const auto store = KvStore::Create(kLayout, int64_t{1} << 40);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("5066549580791808 bytes in all"));
  const auto overflow = KvStore::Create(kLayout, INT64_MAX);
  EXPECT_EQ(overflow.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(KvStoreTest, NothingToStoreIsAnInvalidArgument) {
  EXPECT_EQ(KvStore::Create(kLayout, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvStore::Create(KvLayout{}, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::kv
