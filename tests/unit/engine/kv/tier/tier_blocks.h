// Blocks for tests of the disk tier: their bytes follow from their names, so that whatever is read can be
// told from anything else that was ever written.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/tier/block_store.h"

namespace baton::kv::tier {

inline Identity IdentityOf(uint8_t model = 1, int64_t block_bytes = 5000) {
  Identity identity;
  identity.fingerprint.fill(model);
  identity.layout.fill(7);
  identity.block_bytes = block_bytes;
  return identity;
}

inline BlockHash HashOf(uint64_t name) {
  std::string bytes(BlockHash::kBytes, '\1');
  const uint64_t mixed = name * 0x9E3779B97F4A7C15u;
  std::memcpy(bytes.data(), &mixed, sizeof(mixed));
  return BlockHash::FromBytes(bytes);
}

inline BlockHash RootOf(uint64_t name) { return HashOf(1'000'000 + name % 3); }

inline std::vector<BlockHash> HashesOf(uint64_t first, uint64_t count) {
  std::vector<BlockHash> hashes;
  for (uint64_t i = 0; i < count; ++i) hashes.push_back(HashOf(first + i));
  return hashes;
}

inline void FillBlock(uint64_t name, std::span<std::byte> block) {
  std::minstd_rand random(static_cast<uint32_t>(name) + 1);
  for (std::byte& byte : block) byte = static_cast<std::byte>(random() >> 8);
}

inline absl::Status AppendBlock(BlockStore& store, uint64_t name) {
  PageBuffer slot(store.identity().slot_bytes());
  FillBlock(name, slot.bytes().first(static_cast<size_t>(store.identity().block_bytes)));
  return store.Append(HashOf(name), RootOf(name), slot);
}

// How many of these blocks come back in one read, each as it was written; a failure for any other bytes.
inline int64_t ReadBlocks(BlockStore& store, uint64_t first, int64_t count) {
  PageBuffer slots(count * store.identity().slot_bytes());
  const auto hashes = HashesOf(first, static_cast<uint64_t>(count));
  const int64_t read = store.ReadRun(hashes, slots);
  std::vector<std::byte> expected(static_cast<size_t>(store.identity().block_bytes));
  for (int64_t i = 0; i < read; ++i) {
    FillBlock(first + static_cast<uint64_t>(i), expected);
    const auto slot = slots.bytes().subspan(static_cast<size_t>(i * store.identity().slot_bytes()));
    EXPECT_EQ(std::memcmp(slot.data(), expected.data(), expected.size()), 0)
        << "block " << first + static_cast<uint64_t>(i) << " is not what was written";
  }
  return read;
}

}  // namespace baton::kv::tier
