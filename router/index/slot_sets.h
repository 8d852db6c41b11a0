// SlotSets: many small sets of workers, each named by 30 bits. One or two members live in the name itself;
// more in a sorted array of 3, 7, ... 2,047 slots; yet more in a bitset. Arrays and bitsets come from slabs:
// chunks of 64 KiB cut into equal items, which go back to the heap when their last item does, so that memory
// follows what is stored, whatever came and went before. Part of PrefixIndex, under its lock: const functions
// on any number of threads, others alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/check.h"

namespace baton::router::index {

class SlotSets {
 public:
  // Slots are below this: a bitset is 511 words and its count, 4 KiB.
  static constexpr size_t kWords = 511;
  static constexpr uint32_t kMaxSlots = kWords * 64;

  // Name of a set; kEmpty names the set without members. Bit 30 is the owner's to use.
  using Name = uint32_t;
  static constexpr Name kEmpty = 0;
  static constexpr Name kOwnersBit = Name{1} << 30;

  // A word of a bitset. Bitsets and arrays take turns in the same memory.
  using Word = uint64_t __attribute__((may_alias));

  // A set's members, wherever they lie: `words` (kWords of them) if it is a bitset, else `members`, in rising
  // order.
  struct View {
    std::span<const uint16_t> members;
    const Word* words = nullptr;
    // Where the members of the smallest sets are unpacked to.
    uint16_t unpacked[2];
  };
  // `view` must stay where it is while it is used.
  void Read(Name name, View* view) const;
  bool Contains(Name name, uint32_t slot) const;
  size_t Size(Name name) const;

  enum class Added { kNew, kAlready, kNoMemory };
  // May change the name. kNoMemory, and nothing changed, if it would take a chunk more than `max_bytes`
  // allow.
  Added Add(Name* name, uint32_t slot, int64_t max_bytes);
  // False if it was no member. May change the name.
  bool Remove(Name* name, uint32_t slot);
  // Removes the members whose bit is set. May change the name.
  void RemoveAll(Name* name, std::span<const uint64_t> slots);
  // Removals may take a chunk for the smaller storage, whatever the limit: at most one per size, 704 KiB in
  // all.

  // Gives the storage back; the name becomes kEmpty.
  void Free(Name* name);

  // Chunks and their directory.
  int64_t bytes() const;

 private:
  static constexpr Name kStoredBit = Name{1} << 31;
  static constexpr int kItemBits = 13;
  static constexpr size_t kChunkBytes = size_t{1} << 16;
  static constexpr int kArrayClasses = 10;  // 8 bytes to 4 KiB
  static constexpr int kBitset = kArrayClasses;
  static constexpr int kClasses = kArrayClasses + 1;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint16_t kNoItem = UINT16_MAX;
  static constexpr size_t kBitsetBytes = (kWords + 1) * sizeof(Word);
  // A bitset with fewer members goes back to an array.
  static constexpr size_t kFewForBitset = 1023;

  struct Chunk {
    std::unique_ptr<uint16_t[]> memory;
    int size_class = 0;
    uint16_t free_item = kNoItem;  // first of a list threaded through the free items
    uint16_t used = 0;
    uint32_t previous = kNone, next = kNone;  // among the chunks of its class that have room
  };

  static size_t ItemBytes(int size_class) {
    return size_class == kBitset ? kBitsetBytes : size_t{8} << size_class;
  }
  // Members that fit an array of this class: one place holds their number.
  static size_t Capacity(int size_class) { return ItemBytes(size_class) / sizeof(uint16_t) - 1; }
  static int ClassFor(size_t members);

  static bool Stored(Name name) { return (name & kStoredBit) != 0; }
  static Name Packed(std::span<const uint16_t> members);
  const Chunk& ChunkOf(Name name) const { return chunks_[(name & ~(kStoredBit | kOwnersBit)) >> kItemBits]; }
  uint16_t* Item(Name name) const;
  static Word* Words(uint16_t* item) { return reinterpret_cast<Word*>(item); }

  // Storage of a class; kEmpty if that takes a chunk too many.
  Name Allocate(int size_class, int64_t max_bytes);
  void FreeItem(Name name);
  void Link(uint32_t chunk);
  void Unlink(uint32_t chunk);
  // Replaces the storage by one for these members (which may lie in the old one); keeps the owner's bit.
  bool Store(Name* name, std::span<const uint16_t> members, int64_t max_bytes);
  // After removals: a smaller class if that saves half.
  void Shrink(Name* name);

  std::vector<Chunk> chunks_;
  std::vector<uint32_t> unused_;  // places in chunks_ without memory
  uint32_t with_room_[kClasses] = {kNone, kNone, kNone, kNone, kNone, kNone,
                                   kNone, kNone, kNone, kNone, kNone};
  int64_t live_chunks_ = 0;
};

}  // namespace baton::router::index
