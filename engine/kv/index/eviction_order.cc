#include "engine/kv/index/eviction_order.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::kv {

EvictionOrder::EvictionOrder(int64_t total, Eviction eviction)
    : eviction_(eviction), links_(total), forecast_(total) {}

uint32_t EvictionOrder::NewRun(Kind kind) {
  if (spare_.empty()) {
    spare_.push_back(static_cast<uint32_t>(runs_.size()));
    runs_.emplace_back();
  }
  const uint32_t id = spare_.back();
  spare_.pop_back();
  runs_[id] = {
      .place = static_cast<uint32_t>(alive_.size()), .kind = kind, .entered = clock_, .older = youngest_};
  alive_.push_back(id);
  (youngest_ == kNone ? oldest_ : runs_[youngest_].younger) = id;
  youngest_ = id;
  return id;
}

void EvictionOrder::Add(BlockId block, Kind kind) {
  BATON_CHECK(!contains(block)) << "block " << block.value();
  if (open_ == kNone || runs_[open_].kind != kind) open_ = NewRun(kind);
  Run& run = runs_[open_];
  links_[block.value()] = {.run = open_, .previous = run.last, .next = kNone};
  (run.last == kNone ? run.first : links_[run.last].next) = block.value();
  run.last = block.value();
  ++size_;
  ++clock_;
  forecast_.Entered(kind);
}

void EvictionOrder::Remove(BlockId block) {
  BATON_CHECK(contains(block)) << "block " << block.value();
  Link& link = links_[block.value()];
  const uint32_t id = link.run;
  Run& run = runs_[id];
  (link.previous == kNone ? run.first : links_[link.previous].next) = link.next;
  (link.next == kNone ? run.last : links_[link.next].previous) = link.previous;
  link = {};
  --size_;
  if (run.first != kNone) return;
  (run.older == kNone ? oldest_ : runs_[run.older].younger) = run.younger;
  (run.younger == kNone ? youngest_ : runs_[run.younger].older) = run.older;
  runs_[alive_.back()].place = run.place;
  alive_[run.place] = alive_.back();
  alive_.pop_back();
  spare_.push_back(id);
  if (open_ == id) open_ = kNone;
  if (victim_ == id) victim_ = kNone;
}

void EvictionOrder::Reuse(BlockId block) {
  forecast_.Reused(kind(block), clock_ - entered(block));
  Remove(block);
}

void EvictionOrder::Evict(BlockId block) { Remove(block); }

double EvictionOrder::Worth(uint32_t run) const {
  return forecast_.Worth(runs_[run].kind, clock_ - runs_[run].entered);
}

uint32_t EvictionOrder::Least() {
  if (eviction_ == Eviction::kLeastRecentlyUsed) return oldest_;
  // The oldest goes unless another is clearly worth less: what little was learnt must not outweigh age.
  constexpr double kClearly = 0.8;
  uint32_t least = oldest_;
  double worth = kClearly * Worth(oldest_);
  const size_t candidates = std::min<size_t>(kCandidates, alive_.size());
  for (size_t i = 0; i < candidates; ++i) {
    // A multiplicative sequence (Weyl's, of the golden ratio): even, and cheap.
    const uint64_t at = ((++picks_ * 0x9e3779b97f4a7c15ull) >> 32) * alive_.size() >> 32;
    const uint32_t run = alive_[at];
    const double other = Worth(run);
    if (other < worth) {
      least = run;
      worth = other;
    }
  }
  return least;
}

BlockId EvictionOrder::First() {
  BATON_CHECK(size_ > 0);
  if (victim_ == kNone) victim_ = Least();
  return BlockId(runs_[victim_].first);
}

void EvictionOrder::CheckRuns() const {
  int64_t seen = 0;
  size_t runs = 0;
  uint32_t before = kNone;
  for (uint32_t id = oldest_; id != kNone; before = id, id = runs_[id].younger) {
    const Run& run = runs_[id];
    BATON_CHECK_EQ(run.older, before);
    BATON_CHECK_EQ(alive_[run.place], id);
    BATON_CHECK(run.first != kNone) << "run " << id << " is empty";
    BATON_CHECK(++runs <= alive_.size());
    uint32_t previous = kNone;
    for (uint32_t at = run.first; at != kNone; previous = at, at = links_[at].next) {
      BATON_CHECK_EQ(links_[at].run, id);
      BATON_CHECK_EQ(links_[at].previous, previous);
      BATON_CHECK(++seen <= size_) << "of " << size_;
    }
    BATON_CHECK_EQ(run.last, previous);
  }
  BATON_CHECK_EQ(runs, alive_.size());
  BATON_CHECK_EQ(seen, size_);
}

}  // namespace baton::kv
