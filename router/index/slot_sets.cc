#include "router/index/slot_sets.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace baton::router::index {
namespace {

// A packed name holds two members, each plus one so that zero is no member, in 15 bits each.
constexpr uint32_t kMemberBits = 15;
constexpr uint32_t kMemberMask = (1u << kMemberBits) - 1;
static_assert(SlotSets::kMaxSlots < kMemberMask);

bool Test(uint64_t word, uint32_t slot) { return ((word >> (slot % 64)) & 1) != 0; }

}  // namespace

int SlotSets::ClassFor(size_t members) {
  int size_class = 0;
  while (size_class < kArrayClasses && Capacity(size_class) < members) ++size_class;
  return size_class;
}

SlotSets::Name SlotSets::Packed(std::span<const uint16_t> members) {
  Name name = kEmpty;
  for (size_t i = 0; i < members.size(); ++i) name |= (members[i] + 1u) << (i * kMemberBits);
  return name;
}

uint16_t* SlotSets::Item(Name name) const {
  const Chunk& chunk = ChunkOf(name);
  const size_t at = name & ((1u << kItemBits) - 1);
  return chunk.memory.get() + at * ItemBytes(chunk.size_class) / sizeof(uint16_t);
}

void SlotSets::Read(Name name, View* view) const {
  view->words = nullptr;
  if (!Stored(name)) {
    size_t count = 0;
    for (Name rest = name & ~kOwnersBit; rest != 0; rest >>= kMemberBits) {
      view->unpacked[count++] = static_cast<uint16_t>((rest & kMemberMask) - 1);
    }
    view->members = {view->unpacked, count};
    return;
  }
  uint16_t* const item = Item(name);
  if (ChunkOf(name).size_class == kBitset) {
    view->members = {};
    view->words = Words(item);
  } else {
    view->members = {item + 1, item[0]};
  }
}

bool SlotSets::Contains(Name name, uint32_t slot) const {
  if (!Stored(name)) {
    return (name & kMemberMask) == slot + 1 || ((name >> kMemberBits) & kMemberMask) == slot + 1;
  }
  uint16_t* const item = Item(name);
  if (ChunkOf(name).size_class == kBitset) return Test(Words(item)[slot / 64], slot);
  return std::binary_search(item + 1, item + 1 + item[0], static_cast<uint16_t>(slot));
}

size_t SlotSets::Size(Name name) const {
  if (!Stored(name)) {
    return ((name & kMemberMask) != 0 ? 1 : 0) + (((name >> kMemberBits) & kMemberMask) != 0 ? 1 : 0);
  }
  if (ChunkOf(name).size_class == kBitset) return Words(Item(name))[kWords];
  return Item(name)[0];
}

SlotSets::Added SlotSets::Add(Name* name, uint32_t slot, int64_t max_bytes) {
  BATON_DCHECK(slot < kMaxSlots);
  if (Contains(*name, slot)) return Added::kAlready;
  if (Stored(*name)) {
    uint16_t* const item = Item(*name);
    if (ChunkOf(*name).size_class == kBitset) {
      Words(item)[slot / 64] |= uint64_t{1} << (slot % 64);
      ++Words(item)[kWords];
      return Added::kNew;
    }
    if (item[0] < Capacity(ChunkOf(*name).size_class)) {
      uint16_t* const end = item + 1 + item[0];
      uint16_t* const at = std::lower_bound(item + 1, end, static_cast<uint16_t>(slot));
      std::memmove(at + 1, at, (end - at) * sizeof(uint16_t));
      *at = static_cast<uint16_t>(slot);
      ++item[0];
      return Added::kNew;
    }
  }
  View view;
  Read(*name, &view);
  std::array<uint16_t, 2048> members;
  uint16_t* const at =
      std::lower_bound(members.data(), std::copy(view.members.begin(), view.members.end(), members.data()),
                       static_cast<uint16_t>(slot));
  std::memmove(at + 1, at, (members.data() + view.members.size() - at) * sizeof(uint16_t));
  *at = static_cast<uint16_t>(slot);
  return Store(name, {members.data(), view.members.size() + 1}, max_bytes) ? Added::kNew : Added::kNoMemory;
}

bool SlotSets::Remove(Name* name, uint32_t slot) {
  if (!Contains(*name, slot)) return false;
  if (!Stored(*name)) {
    View view;
    Read(*name, &view);
    const uint16_t other = view.members.front() == slot ? view.members.back() : view.members.front();
    const bool last = view.members.size() == 1;
    *name = (*name & kOwnersBit) | (last ? kEmpty : Packed({&other, 1}));
    return true;
  }
  uint16_t* const item = Item(*name);
  if (ChunkOf(*name).size_class == kBitset) {
    Words(item)[slot / 64] &= ~(uint64_t{1} << (slot % 64));
    --Words(item)[kWords];
  } else {
    uint16_t* const end = item + 1 + item[0];
    uint16_t* const at = std::lower_bound(item + 1, end, static_cast<uint16_t>(slot));
    std::memmove(at, at + 1, (end - at - 1) * sizeof(uint16_t));
    --item[0];
  }
  Shrink(name);
  return true;
}

void SlotSets::RemoveAll(Name* name, std::span<const uint64_t> slots) {
  View view;
  Read(*name, &view);
  if (view.words != nullptr) {
    Word* const words = Words(Item(*name));
    uint64_t left = 0;
    for (size_t i = 0; i < kWords; ++i) {
      if (i < slots.size()) words[i] &= ~slots[i];
      left += std::popcount(words[i]);
    }
    words[kWords] = left;
    Shrink(name);
    return;
  }
  std::array<uint16_t, 2048> members;
  size_t left = 0;
  for (const uint16_t slot : view.members) {
    if (slot / 64u >= slots.size() || !Test(slots[slot / 64], slot)) members[left++] = slot;
  }
  if (left == view.members.size()) return;
  if (!Stored(*name)) {
    *name = (*name & kOwnersBit) | Packed({members.data(), left});
    return;
  }
  uint16_t* const item = Item(*name);
  std::copy(members.data(), members.data() + left, item + 1);
  item[0] = static_cast<uint16_t>(left);
  Shrink(name);
}

void SlotSets::Free(Name* name) {
  if (Stored(*name)) FreeItem(*name);
  *name = kEmpty;
}

void SlotSets::Shrink(Name* name) {
  const int size_class = ChunkOf(*name).size_class;
  const size_t size = Size(*name);
  std::array<uint16_t, 2048> members;
  if (size_class == kBitset) {
    if (size > kFewForBitset) return;
    const Word* const words = Words(Item(*name));
    size_t count = 0;
    for (size_t i = 0; i < kWords; ++i) {
      for (uint64_t rest = words[i]; rest != 0; rest &= rest - 1) {
        members[count++] = static_cast<uint16_t>(i * 64 + std::countr_zero(rest));
      }
    }
  } else {
    if (size > 2 && size * 4 > Capacity(size_class)) return;
    const uint16_t* const item = Item(*name);
    std::copy(item + 1, item + 1 + size, members.data());
  }
  // Without memory for the smaller one the larger one does.
  Store(name, {members.data(), size}, INT64_MAX);
}

bool SlotSets::Store(Name* name, std::span<const uint16_t> members, int64_t max_bytes) {
  const Name owners = *name & kOwnersBit;
  Name fresh = kEmpty;
  if (members.size() <= 2) {
    fresh = Packed(members);
  } else {
    const int size_class = ClassFor(members.size());
    fresh = Allocate(size_class, max_bytes);
    if (fresh == kEmpty) return false;
    uint16_t* const item = Item(fresh);
    if (size_class == kBitset) {
      Word* const words = Words(item);
      std::fill(words, words + kWords, 0);
      for (const uint16_t slot : members) words[slot / 64] |= uint64_t{1} << (slot % 64);
      words[kWords] = members.size();
    } else {
      item[0] = static_cast<uint16_t>(members.size());
      std::copy(members.begin(), members.end(), item + 1);
    }
  }
  if (Stored(*name)) FreeItem(*name);
  *name = fresh | owners;
  return true;
}

SlotSets::Name SlotSets::Allocate(int size_class, int64_t max_bytes) {
  uint32_t at = with_room_[size_class];
  if (at == kNone) {
    const bool directory_full = unused_.empty() && chunks_.size() == (size_t{1} << (30 - kItemBits));
    if (bytes() + static_cast<int64_t>(kChunkBytes) > max_bytes || directory_full) return kEmpty;
    if (unused_.empty()) {
      at = static_cast<uint32_t>(chunks_.size());
      chunks_.emplace_back();
    } else {
      at = unused_.back();
      unused_.pop_back();
    }
    Chunk& chunk = chunks_[at];
    chunk = Chunk();
    chunk.memory.reset(new uint16_t[kChunkBytes / sizeof(uint16_t)]);
    chunk.size_class = size_class;
    const size_t items = kChunkBytes / ItemBytes(size_class);
    const size_t stride = ItemBytes(size_class) / sizeof(uint16_t);
    for (size_t i = 0; i < items; ++i) {
      chunk.memory[i * stride] = i + 1 < items ? static_cast<uint16_t>(i + 1) : kNoItem;
    }
    chunk.free_item = 0;
    ++live_chunks_;
    Link(at);
  }
  Chunk& chunk = chunks_[at];
  const uint16_t item = chunk.free_item;
  const Name name = kStoredBit | (at << kItemBits) | item;
  chunk.free_item = *Item(name);
  ++chunk.used;
  if (chunk.free_item == kNoItem) Unlink(at);
  return name;
}

void SlotSets::FreeItem(Name name) {
  const uint32_t at = (name & ~(kStoredBit | kOwnersBit)) >> kItemBits;
  Chunk& chunk = chunks_[at];
  if (chunk.free_item == kNoItem) Link(at);
  *Item(name) = chunk.free_item;
  chunk.free_item = static_cast<uint16_t>(name & ((1u << kItemBits) - 1));
  if (--chunk.used > 0) return;
  Unlink(at);
  chunk.memory = nullptr;
  --live_chunks_;
  unused_.push_back(at);
}

void SlotSets::Link(uint32_t chunk) {
  uint32_t& first = with_room_[chunks_[chunk].size_class];
  chunks_[chunk].previous = kNone;
  chunks_[chunk].next = first;
  if (first != kNone) chunks_[first].previous = chunk;
  first = chunk;
}

void SlotSets::Unlink(uint32_t chunk) {
  const Chunk& gone = chunks_[chunk];
  if (gone.previous != kNone) {
    chunks_[gone.previous].next = gone.next;
  } else {
    with_room_[gone.size_class] = gone.next;
  }
  if (gone.next != kNone) chunks_[gone.next].previous = gone.previous;
}

int64_t SlotSets::bytes() const {
  return live_chunks_ * static_cast<int64_t>(kChunkBytes) +
         static_cast<int64_t>(chunks_.capacity() * sizeof(Chunk) + unused_.capacity() * sizeof(uint32_t));
}

}  // namespace baton::router::index
