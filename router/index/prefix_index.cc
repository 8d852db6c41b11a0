#include "router/index/prefix_index.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/base/check.h"

namespace baton::router::index {
namespace {

void Set(std::vector<uint64_t>& bits, uint32_t slot) {
  if (bits.size() <= slot / 64) bits.resize(slot / 64 + 1);
  bits[slot / 64] |= uint64_t{1} << (slot % 64);
}

void Clear(std::vector<uint64_t>& bits, uint32_t slot) { bits[slot / 64] &= ~(uint64_t{1} << (slot % 64)); }

bool Test(const std::vector<uint64_t>& bits, uint32_t slot) {
  return slot / 64 < bits.size() && ((bits[slot / 64] >> (slot % 64)) & 1) != 0;
}

}  // namespace

// The workers that hold every block so far, while a chain is walked: a bitset while they are many, a list
// when they are few. Who drops out gets the length that it reached.
class PrefixIndex::Walk {
 public:
  Walk(const SlotSets& sets, const Bits& live, std::vector<uint32_t>& lengths)
      : sets_(sets), words_(live.size()), lengths_(lengths) {
    std::copy(live.begin(), live.end(), many_.begin());
  }

  // Drops workers that lack the next block, whose set is `name`: they have `length` blocks.
  void Keep(SlotSets::Name name, uint32_t length) {
    if (few_count_ >= 0) {
      KeepFew(name, length);
      return;
    }
    SlotSets::View view;
    sets_.Read(name, &view);
    if (view.words != nullptr) {
      uint64_t gone = 0;
      for (size_t i = 0; i < words_; ++i) gone |= many_[i] & ~view.words[i];
      if (gone == 0) return;
      for (size_t i = 0; i < words_; ++i) {
        DropOut(i, many_[i] & ~view.words[i], length);
        many_[i] &= view.words[i];
      }
    } else if (view.members.size() <= kFew) {
      few_count_ = 0;
      for (const uint16_t slot : view.members) {
        if (slot / 64u >= words_ || (many_[slot / 64] & Bit(slot)) == 0) continue;
        few_[few_count_++] = slot;
        many_[slot / 64] &= ~Bit(slot);
      }
      for (size_t i = 0; i < words_; ++i) DropOut(i, many_[i], length);
      return;
    } else {
      std::array<uint64_t, SlotSets::kWords> holders;
      std::fill_n(holders.begin(), words_, 0);
      for (const uint16_t slot : view.members) {
        if (slot / 64u < words_) holders[slot / 64] |= Bit(slot);
      }
      for (size_t i = 0; i < words_; ++i) {
        DropOut(i, many_[i] & ~holders[i], length);
        many_[i] &= holders[i];
      }
    }
    ToFewIfFew();
  }

  bool none() const { return few_count_ == 0; }

  void End(uint32_t length) {
    for (int i = 0; i < few_count_; ++i) lengths_[few_[i]] = length;
    if (few_count_ >= 0) return;
    for (size_t i = 0; i < words_; ++i) DropOut(i, many_[i], length);
  }

 private:
  static constexpr size_t kFew = 64;

  static uint64_t Bit(uint32_t slot) { return uint64_t{1} << (slot % 64); }

  void DropOut(size_t word, uint64_t bits, uint32_t length) {
    for (; bits != 0; bits &= bits - 1) lengths_[word * 64 + std::countr_zero(bits)] = length;
  }

  void KeepFew(SlotSets::Name name, uint32_t length) {
    int kept = 0;
    for (int i = 0; i < few_count_; ++i) {
      if (sets_.Contains(name, few_[i])) {
        few_[kept++] = few_[i];
      } else {
        lengths_[few_[i]] = length;
      }
    }
    few_count_ = kept;
  }

  void ToFewIfFew() {
    size_t count = 0;
    for (size_t i = 0; i < words_; ++i) count += std::popcount(many_[i]);
    if (count > kFew) return;
    few_count_ = 0;
    for (size_t i = 0; i < words_; ++i) {
      for (uint64_t rest = many_[i]; rest != 0; rest &= rest - 1) {
        few_[few_count_++] = static_cast<uint16_t>(i * 64 + std::countr_zero(rest));
      }
    }
  }

  const SlotSets& sets_;
  const size_t words_;
  std::vector<uint32_t>& lengths_;
  std::array<uint64_t, SlotSets::kWords> many_;
  std::array<uint16_t, kFew> few_;
  int few_count_ = -1;  // -1: many
};

PrefixIndex::PrefixIndex(Options options)
    : options_(options), segments_(kSegments), speculation_(options.max_speculative) {}

std::optional<WorkerSlot> PrefixIndex::Join() {
  absl::MutexLock lock(&mutex_);
  if (free_slots_.empty() && slots_.size() == SlotSets::kMaxSlots) {
    while (free_slots_.empty() && SweepOne()) {
    }
    if (free_slots_.empty()) return std::nullopt;
  }
  uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot] = {.life = ++lives_, .pairs = 0};
  Set(live_, slot);
  ++workers_;
  return WorkerSlot(slot);
}

void PrefixIndex::Leave(WorkerSlot slot) {
  absl::MutexLock lock(&mutex_);
  if (!Lives(slot)) return;
  Slot& gone = slots_[slot.value()];
  pairs_ -= gone.pairs;
  --workers_;
  Clear(live_, slot.value());
  if (gone.pairs == 0) {  // nothing to sweep up
    free_slots_.push_back(slot.value());
  } else {
    Set(left_, slot.value());
    ++left_count_;
  }
  gone = Slot();
}

template <typename Work>
void PrefixIndex::Ahead(std::span<const kv::BlockHash> blocks, Work work) const {
  for (size_t i = 0; i < blocks.size() + kAhead; ++i) {
    if (i < blocks.size()) {
      const Key key(blocks[i]);
      segments_[key.segment].Prefetch(key);
    }
    if (i >= kAhead) work(blocks[i - kAhead]);
  }
}

void PrefixIndex::InSlices(WorkerSlot slot, std::span<const kv::BlockHash> blocks,
                           const std::function<void(const kv::BlockHash&)>& work) {
  while (!blocks.empty()) {
    const std::span<const kv::BlockHash> slice = blocks.first(std::min(kSlice, blocks.size()));
    blocks = blocks.subspan(slice.size());
    absl::MutexLock lock(&mutex_);
    if (!Lives(slot)) return;
    Ahead(slice, work);
    SweepOne();
  }
}

void PrefixIndex::Store(WorkerSlot slot, std::span<const kv::BlockHash> blocks) {
  InSlices(slot, blocks, [&](const kv::BlockHash& block) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!speculation_.empty()) speculation_.Settle({slot, slots_[slot.value()].life}, block);
    AddPair(slot, block);
  });
}

void PrefixIndex::Evict(WorkerSlot slot, std::span<const kv::BlockHash> blocks) {
  InSlices(slot, blocks, [&](const kv::BlockHash& block) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!speculation_.empty()) speculation_.Settle({slot, slots_[slot.value()].life}, block);
    RemovePair(slot, block);
  });
}

void PrefixIndex::Speculate(WorkerSlot slot, std::span<const kv::BlockHash> blocks, absl::Time until) {
  while (!blocks.empty()) {
    const std::span<const kv::BlockHash> slice = blocks.first(std::min(kSlice, blocks.size()));
    blocks = blocks.subspan(slice.size());
    absl::MutexLock lock(&mutex_);
    if (!Lives(slot)) return;
    const Speculation::Holder holder{slot, slots_[slot.value()].life};
    std::vector<kv::BlockHash> unconfirmed;
    unconfirmed.reserve(slice.size());
    Ahead(slice, [&](const kv::BlockHash& block) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (AddPair(slot, block) || speculation_.holds(holder, block)) unconfirmed.push_back(block);
    });
    speculation_.Add(holder, std::move(unconfirmed), until);
    Expire(absl::InfinitePast(), SIZE_MAX);  // those beyond the bound
  }
}

bool PrefixIndex::AddPair(WorkerSlot slot, const kv::BlockHash& block) {
  const Key key(block);
  Segment& segment = segments_[key.segment];
  Segment::Entry* entry = segment.Find(key);
  SlotSets::Added added = SlotSets::Added::kNew;
  if (entry == nullptr) {
    AddEntry(key, slot);
  } else {
    const auto try_it = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return sets_.Add(&entry->set, slot.value(), options_.max_bytes - (Bytes() - sets_.bytes()));
    };
    added = try_it();
    if (added == SlotSets::Added::kNoMemory) {
      MakeRoom();
      entry = segment.Find(key);  // it may have moved, or made room itself
      if (entry != nullptr) added = try_it();
    }
    if (added == SlotSets::Added::kNoMemory) {
      ++dropped_pairs_;
      return false;
    }
    entry->set |= Segment::kUsed;
  }
  if (added == SlotSets::Added::kAlready) return false;
  ++slots_[slot.value()].pairs;
  ++pairs_;
  return true;
}

void PrefixIndex::AddEntry(const Key& key, WorkerSlot slot) {
  Segment& segment = segments_[key.segment];
  const int64_t others = Bytes() - segment.bytes();
  segment_bytes_ -= segment.bytes();
  const auto evict = [&](Segment::Entry* entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Drop(segment, entry);
    ++evicted_blocks_;
  };
  const auto room_for = [&](int64_t more) { return others + segment.bytes() + more <= options_.max_bytes; };
  if (segment.full()) {
    // The smallest table is every segment's due.
    if (segment.size() == 0 || room_for(segment.growth())) {
      segment.Grow();
    } else {
      evict(segment.Coldest());
    }
  }
  SlotSets::Name set = SlotSets::kEmpty;
  sets_.Add(&set, slot.value(), 0);  // a single member takes no memory
  while (!segment.Insert(key, set)) {
    if (room_for(Segment::kExtension)) {
      segment.Extend();
    } else {
      evict(segment.LastCold());
    }
  }
  segment_bytes_ += segment.bytes();
  ++blocks_;
}

void PrefixIndex::Drop(Segment& segment, Segment::Entry* entry) {
  SlotSets::View view;
  sets_.Read(entry->set, &view);
  const auto forget = [&](uint32_t slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (slots_[slot].life == 0) return;  // left, and not swept up yet
    --slots_[slot].pairs;
    --pairs_;
  };
  for (const uint16_t slot : view.members) forget(slot);
  if (view.words != nullptr) {
    for (size_t i = 0; i < SlotSets::kWords; ++i) {
      for (uint64_t rest = view.words[i]; rest != 0; rest &= rest - 1) {
        forget(static_cast<uint32_t>(i * 64 + std::countr_zero(rest)));
      }
    }
  }
  sets_.Free(&entry->set);
  segment.Erase(entry);
  --blocks_;
}

void PrefixIndex::MakeRoom() {
  constexpr int kVictims = 16;
  int victims = 0;
  for (size_t looked = 0; victims < kVictims && looked < kSegments; ++looked) {
    room_at_ = (room_at_ + 1) % kSegments;
    Segment& segment = segments_[room_at_];
    if (segment.size() == 0) continue;
    Drop(segment, segment.Coldest());
    ++evicted_blocks_;
    ++victims;
  }
}

void PrefixIndex::RemovePair(WorkerSlot slot, const kv::BlockHash& block) {
  const Key key(block);
  Segment& segment = segments_[key.segment];
  Segment::Entry* const entry = segment.Find(key);
  if (entry == nullptr || !sets_.Remove(&entry->set, slot.value())) return;
  --slots_[slot.value()].pairs;
  --pairs_;
  EraseEntryIfEmpty(segment, entry);
}

void PrefixIndex::EraseEntryIfEmpty(Segment& segment, Segment::Entry* entry) {
  if ((entry->set & ~Segment::kUsed) != SlotSets::kEmpty) return;
  segment.Erase(entry);
  --blocks_;
}

int64_t PrefixIndex::Confirmed(WorkerSlot slot, std::span<const kv::BlockHash> run) const {
  absl::ReaderMutexLock lock(&mutex_);
  if (!Lives(slot)) return 0;
  const Speculation::Holder holder{slot, slots_[slot.value()].life};
  const auto speculative = [&](const kv::BlockHash& block)
                               ABSL_NO_THREAD_SAFETY_ANALYSIS { return speculation_.holds(holder, block); };
  if (run.empty() || !speculative(run.back())) return std::ssize(run);
  if (speculative(run.front())) return 0;  // a burst of equal prompts: no search
  return std::partition_point(run.begin(), run.end(),
                              [&](const kv::BlockHash& block) { return !speculative(block); }) -
         run.begin();
}

void PrefixIndex::Match(std::span<const kv::BlockHash> chain, Matches* matches) const {
  absl::ReaderMutexLock lock(&mutex_);
  matches->blocks.assign(slots_.size(), 0);
  matches->longest = 0;
  Walk walk(sets_, live_, matches->blocks);
  for (size_t i = 0; i < std::min(kAhead, chain.size()); ++i) {
    const Key key(chain[i]);
    segments_[key.segment].Prefetch(key);
  }
  uint32_t length = 0;
  for (; length < chain.size(); ++length) {
    if (length + kAhead < chain.size()) {
      const Key ahead(chain[length + kAhead]);
      segments_[ahead.segment].Prefetch(ahead);
    }
    const Key key(chain[length]);
    const Segment::Entry* const entry = segments_[key.segment].Find(key);
    if (entry == nullptr) break;
    walk.Keep(Segment::Load(*entry), length);
    if (walk.none()) break;
    Segment::MarkUsed(*entry);
  }
  if (length == 0) return;
  walk.End(length);
  matches->longest = length;
}

bool PrefixIndex::SweepOne() {
  if (sweeping_count_ == 0) {
    if (left_count_ == 0) return false;
    std::swap(sweeping_, left_);
    std::swap(sweeping_count_, left_count_);
    sweep_at_ = 0;
  }
  Segment& segment = segments_[sweep_at_];
  const int64_t before = segment.size();
  segment_bytes_ -= segment.bytes();
  segment.Rebuild([&](Segment::Entry& entry)
                      ABSL_NO_THREAD_SAFETY_ANALYSIS { sets_.RemoveAll(&entry.set, sweeping_); });
  segment_bytes_ += segment.bytes();
  blocks_ -= before - segment.size();
  if (++sweep_at_ < kSegments) return true;
  for (size_t i = 0; i < sweeping_.size(); ++i) {
    for (uint64_t rest = std::exchange(sweeping_[i], 0); rest != 0; rest &= rest - 1) {
      free_slots_.push_back(static_cast<uint32_t>(i * 64 + std::countr_zero(rest)));
    }
  }
  sweeping_count_ = 0;
  return true;
}

bool PrefixIndex::Expire(absl::Time now, size_t enough) {
  Speculation::Batch batch;
  size_t done = 0;
  while (speculation_.TakeExpired(now, &batch)) {
    if (slots_[batch.holder.slot.value()].life == batch.holder.life) {  // else it left, its pairs with it
      Ahead(batch.blocks, [&](const kv::BlockHash& block)
                              ABSL_NO_THREAD_SAFETY_ANALYSIS { RemovePair(batch.holder.slot, block); });
    }
    done += batch.blocks.size();
    if (done >= enough) return true;
  }
  return false;
}

bool PrefixIndex::Maintain(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const bool more = Expire(now, kSlice * 16);
  SweepOne();
  return more || sweeping_count_ > 0 || left_count_ > 0;
}

int64_t PrefixIndex::Bytes() const {
  return segment_bytes_ + sets_.bytes() + speculation_.bytes() +
         static_cast<int64_t>(kSegments * sizeof(Segment) + slots_.capacity() * sizeof(Slot));
}

PrefixIndex::Stats PrefixIndex::stats() const {
  absl::ReaderMutexLock lock(&mutex_);
  return {.workers = workers_,
          .blocks = blocks_,
          .pairs = pairs_,
          .speculative = speculation_.size(),
          .bytes = Bytes(),
          .evicted_blocks = evicted_blocks_,
          .dropped_pairs = dropped_pairs_};
}

int64_t PrefixIndex::PairsOf(WorkerSlot slot) const {
  absl::ReaderMutexLock lock(&mutex_);
  return Lives(slot) ? slots_[slot.value()].pairs : 0;
}

void PrefixIndex::CheckConsistency() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<int64_t> pairs(slots_.size());
  int64_t blocks = 0, bytes = 0, all = 0;
  for (const Segment& segment : segments_) {
    int64_t entries = 0;
    segment.ForEach([&](const Segment::Entry& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      ++entries;
      SlotSets::View view;
      sets_.Read(entry.set, &view);
      for (const uint16_t slot : view.members) ++pairs[slot];
      if (view.words == nullptr) {
        BATON_CHECK_EQ(view.members.size(), sets_.Size(entry.set));
        return;
      }
      size_t members = 0;
      for (uint32_t slot = 0; slot < SlotSets::kMaxSlots; ++slot) {
        if (((view.words[slot / 64] >> (slot % 64)) & 1) == 0) continue;
        ++members;
        ++pairs[slot];
      }
      BATON_CHECK_EQ(members, sets_.Size(entry.set));
    });
    BATON_CHECK_EQ(entries, segment.size());
    segment.CheckOrder();
    blocks += entries;
    bytes += segment.bytes();
  }
  BATON_CHECK_EQ(blocks, blocks_);
  BATON_CHECK_EQ(bytes, segment_bytes_);
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].life == 0) {
      const bool unswept = Test(left_, slot) || Test(sweeping_, slot);
      BATON_CHECK(unswept || pairs[slot] == 0) << "slot " << slot << " is void and in " << pairs[slot];
    } else {
      BATON_CHECK_EQ(pairs[slot], slots_[slot].pairs) << "slot " << slot;
      all += pairs[slot];
    }
  }
  BATON_CHECK_EQ(all, pairs_);
}

}  // namespace baton::router::index
