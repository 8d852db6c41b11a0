#include "router/index/segment.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::router::index {

const Segment::Entry* Segment::Find(const Key& key) const {
  if (entries_.empty()) return nullptr;
  const Entry* entry = &entries_[Home(key.order)];
  const Entry* const end = entries_.data() + entries_.size();
  for (; entry != end && Load(*entry) != SlotSets::kEmpty && entry->order <= key.order; ++entry) {
    if (entry->order == key.order && entry->tag == key.tag) return entry;
  }
  return nullptr;
}

int64_t Segment::growth() const {
  const size_t homes = homes_ + homes_ / 5 + 8;
  return static_cast<int64_t>((homes + Tail(homes) - entries_.size()) * sizeof(Entry));
}

void Segment::Grow() { Resize(homes_ + homes_ / 5 + 8); }

void Segment::Resize(size_t homes) {
  for (size_t tail = Tail(homes);; tail *= 2) {
    std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(homes + tail));
    const size_t old_homes = std::exchange(homes_, homes);
    size_t next = 0;
    bool fits = true;
    for (const Entry& entry : old) {
      if (entry.set == SlotSets::kEmpty) continue;
      next = std::max(next, Home(entry.order));
      if (next == entries_.size()) {  // the last homes are crowded: a longer tail
        fits = false;
        break;
      }
      entries_[next++] = entry;
    }
    if (fits) break;
    entries_ = std::move(old);
    homes_ = old_homes;
  }
  hand_ = 0;
}

bool Segment::Insert(const Key& key, SlotSets::Name set) {
  BATON_DCHECK(!full());
  size_t at = Home(key.order);
  while (at < entries_.size() && entries_[at].set != SlotSets::kEmpty && entries_[at].order <= key.order) {
    ++at;
  }
  size_t gap = at;
  while (gap < entries_.size() && entries_[gap].set != SlotSets::kEmpty) ++gap;
  if (gap == entries_.size()) return false;
  std::move_backward(entries_.begin() + at, entries_.begin() + gap, entries_.begin() + gap + 1);
  entries_[at] = {.order = key.order, .set = set, .tag = key.tag};
  ++size_;
  return true;
}

void Segment::Extend() {
  const size_t size = entries_.size() + kExtension / sizeof(Entry);
  entries_.reserve(size);
  entries_.resize(size);
}

Segment::Entry* Segment::LastCold() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->set != SlotSets::kEmpty; ++entry) {
    if ((entry->set & kUsed) == 0) return &*entry;
  }
  return &entries_.back();
}

void Segment::Erase(Entry* entry) {
  // Entries pushed beyond their home move one back.
  size_t at = entry - entries_.data();
  while (at + 1 < entries_.size() && entries_[at + 1].set != SlotSets::kEmpty &&
         Home(entries_[at + 1].order) <= at) {
    entries_[at] = entries_[at + 1];
    ++at;
  }
  entries_[at] = Entry();
  --size_;
}

Segment::Entry* Segment::Coldest() {
  BATON_CHECK(size_ > 0);
  while (true) {
    if (++hand_ >= entries_.size()) hand_ = 0;
    Entry& entry = entries_[hand_];
    if (entry.set == SlotSets::kEmpty) continue;
    if ((entry.set & kUsed) == 0) return &entry;
    entry.set &= ~kUsed;
  }
}

void Segment::CheckOrder() const {
  const Entry* before = nullptr;
  for (size_t at = 0; at < entries_.size(); ++at) {
    const Entry& entry = entries_[at];
    if (entry.set == SlotSets::kEmpty) continue;
    BATON_CHECK(Home(entry.order) <= at) << "an entry lies before its home";
    BATON_CHECK(before == nullptr || before->order <= entry.order) << "out of order";
    for (size_t between = Home(entry.order); between < at; ++between) {
      BATON_CHECK(entries_[between].set != SlotSets::kEmpty) << "a gap between an entry and its home";
    }
    before = &entry;
  }
}

}  // namespace baton::router::index
