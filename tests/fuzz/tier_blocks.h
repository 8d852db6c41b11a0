// Tools of the interpreters of the tiers' stores: blocks that are known by name and model, whose hashes and
// bytes follow from both, and damage to a file of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/tier/block_store.h"
#include "engine/kv/tier/folder.h"

namespace baton::kv::tier {

inline BlockHash HashFor(int model, int name) {
  std::string bytes(BlockHash::kBytes, static_cast<char>(model));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(name * 31 + model * 7 + 1 + static_cast<int>(i) * 3);
  }
  return BlockHash::FromBytes(bytes);
}

inline std::byte ByteFor(int model, int name, int64_t at) {
  return static_cast<std::byte>(model * 101 + name * 13 + at * (name + 3));
}

inline void FlipBit(std::vector<std::byte>& file, size_t at, int bit) {
  if (!file.empty()) file[at % file.size()] ^= static_cast<std::byte>(1 << (bit % 8));
}

// Two slots of a file, with or without what their seals say of them.
inline void SwapSlots(std::vector<std::byte>& file, int64_t slot_bytes, size_t a, size_t b, bool seals) {
  const auto slot = static_cast<size_t>(slot_bytes);
  const size_t slots = file.size() < kPage ? 0 : (file.size() - kPage) / slot;
  if (slots < 2 || a % slots == b % slots) return;
  const size_t bytes = seals ? slot : slot - kPage;
  const auto at = file.begin() + kPage;
  std::swap_ranges(at + static_cast<ptrdiff_t>(a % slots * slot),
                   at + static_cast<ptrdiff_t>(a % slots * slot + bytes),
                   at + static_cast<ptrdiff_t>(b % slots * slot));
}

}  // namespace baton::kv::tier
