// Segment: one of the index's tables: block -> name of its set of workers, 16 bytes an entry, open
// addressing. Entries lie in the order of their hash and an entry's home is its hash scaled to the table, so
// a search ends at the first larger hash, a table fills to 7/8, grows by a fifth (not twofold) and is rebuilt
// by one pass from front to back. An entry keeps 96 bits of the hash; ten more are in the choice of the
// segment. Part of PrefixIndex, under its lock; what a set's name means is the owner's business.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "protocol/block_hash.h"
#include "router/index/slot_sets.h"

namespace baton::router::index {

// The parts of a block hash that are used here.
struct Key {
  static constexpr int kSegmentBits = 10;
  explicit Key(const kv::BlockHash& hash) {
    uint64_t word;
    std::memcpy(&word, hash.bytes().data(), sizeof(word));
    std::memcpy(&tag, hash.bytes().data() + sizeof(word), sizeof(tag));
    segment = static_cast<uint32_t>(word & ((1u << kSegmentBits) - 1));
    order = static_cast<uint32_t>(word >> 32);
  }
  uint32_t segment;
  uint32_t order;
  uint64_t tag;
};

class Segment {
 public:
  struct Entry {
    uint32_t order = 0;
    SlotSets::Name set = SlotSets::kEmpty;  // kEmpty: no entry here
    uint64_t tag = 0;
  };
  // "Matched, or stored by one more worker, since the eviction's hand came by", in the bit of a set's name
  // that is the owner's.
  static constexpr SlotSets::Name kUsed = SlotSets::kOwnersBit;

  // Readers' access to the set's name, which other readers may be marking as used.
  static SlotSets::Name Load(const Entry& entry) {
    return std::atomic_ref<SlotSets::Name>(const_cast<Entry&>(entry).set).load(std::memory_order_relaxed);
  }
  static void MarkUsed(const Entry& entry) {
    std::atomic_ref<SlotSets::Name> set(const_cast<Entry&>(entry).set);
    if ((set.load(std::memory_order_relaxed) & kUsed) == 0) set.fetch_or(kUsed, std::memory_order_relaxed);
  }

  void Prefetch(const Key& key) const {
    if (!entries_.empty()) __builtin_prefetch(&entries_[Home(key.order)]);
  }
  // Null if there is none.
  const Entry* Find(const Key& key) const;
  Entry* Find(const Key& key) { return const_cast<Entry*>(std::as_const(*this).Find(key)); }

  // True if Insert of a new key has to grow the table first.
  bool full() const { return size_ + 1 > homes_ - homes_ / 8; }
  // Bytes that Grow would add.
  int64_t growth() const;
  void Grow();
  // The key is not there and the table is not full. False, and nothing changed, if the end of the table is so
  // crowded that it needs Extend, or to lose LastCold, first.
  [[nodiscard]] bool Insert(const Key& key, SlotSets::Name set);
  // A few more places at the end.
  void Extend();
  static constexpr int64_t kExtension = 8 * sizeof(Entry);
  // The last entry at a crowded end that is not marked as used, or the very last.
  Entry* LastCold();
  void Erase(Entry* entry);

  // The next entry to evict: the first one that was not used since the hand came by last. Not empty.
  Entry* Coldest();

  // Calls keep(entry) for each, which may change the set's name, and drops those whose set is then empty.
  // Gives memory back when much is gone.
  template <typename Keep>
  void Rebuild(Keep keep);

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Entry& entry : entries_) {
      if (entry.set != SlotSets::kEmpty) visit(entry);
    }
  }
  // CHECK-fails if an entry can't be found where it lies.
  void CheckOrder() const;

  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t bytes() const { return static_cast<int64_t>(entries_.capacity() * sizeof(Entry)); }

 private:
  size_t Home(uint32_t order) const { return (uint64_t{order} * homes_) >> 32; }
  static size_t Tail(size_t homes) { return 24 + homes / 64; }
  void Resize(size_t homes);

  // `homes_` places that an entry can call home and a tail for what is pushed beyond the last.
  std::vector<Entry> entries_;
  size_t homes_ = 0;
  size_t size_ = 0;
  size_t hand_ = 0;
};

template <typename Keep>
void Segment::Rebuild(Keep keep) {
  size_t next = 0;  // entries only ever move to the front
  for (size_t at = 0; at < entries_.size(); ++at) {
    if (entries_[at].set == SlotSets::kEmpty) continue;
    Entry entry = std::exchange(entries_[at], Entry());
    keep(entry);
    if ((entry.set & ~kUsed) == SlotSets::kEmpty) {
      --size_;
      continue;
    }
    next = std::max(next, Home(entry.order));
    entries_[next++] = entry;
  }
  if (homes_ > 64 && size_ < homes_ / 2) Resize(size_ + size_ / 3 + 8);
}

}  // namespace baton::router::index
