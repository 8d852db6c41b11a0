// EvictionMemory: what is remembered of blocks that were evicted, so that one that is computed again does not
// begin as a stranger, and its absence teaches the forecast. A table of one entry per hash in which a newer
// one overwrites an older one: it forgets by itself, never grows, and may confuse two hashes once in 16
// million times, which costs nothing but a place in the eviction order. Part of BlockPool; engine thread
// only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/kv/index/reuse_forecast.h"
#include "protocol/block_hash.h"

namespace baton::kv {

class EvictionMemory {
 public:
  struct Entry {
    uint64_t entered = 0;  // the eviction order's clock
    uint8_t uses = 0;
    ReuseForecast::Kind kind{};
  };

  // Room for four times the blocks of the pool, or a little more.
  explicit EvictionMemory(int64_t blocks)
      : slots_(std::bit_ceil(static_cast<uint64_t>(blocks < 1 ? 1 : blocks)) * 4), mask_(slots_.size() - 1) {}

  void Remember(const BlockHash& hash, const Entry& entry) {
    const uint64_t bits = Bits(hash);
    slots_[bits & mask_] = {.entered = entry.entered,
                            .tag = Tag(bits),
                            .uses = static_cast<uint32_t>(entry.uses),
                            .kind = static_cast<uint32_t>(entry.kind)};
  }
  // Forgets it at the same time.
  std::optional<Entry> Take(const BlockHash& hash) {
    const uint64_t bits = Bits(hash);
    Slot& slot = slots_[bits & mask_];
    if (slot.uses == 0 || slot.tag != Tag(bits)) return std::nullopt;
    const Entry entry = {.entered = slot.entered,
                         .uses = static_cast<uint8_t>(slot.uses),
                         .kind = static_cast<ReuseForecast::Kind>(slot.kind)};
    slot.uses = 0;
    return entry;
  }

 private:
  struct Slot {
    uint64_t entered = 0;
    uint32_t tag : 24 = 0;
    uint32_t uses : 5 = 0;  // 0: empty
    uint32_t kind : 3 = 0;
  };
  static uint64_t Bits(const BlockHash& hash) {
    uint64_t bits;
    std::memcpy(&bits, hash.bytes().data(), sizeof(bits));
    return bits;
  }
  static uint32_t Tag(uint64_t bits) { return static_cast<uint32_t>(bits >> 40); }

  std::vector<Slot> slots_;
  const uint64_t mask_;
};

}  // namespace baton::kv
