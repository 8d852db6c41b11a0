#include "common/kv/index/eviction_order.h"

#include "common/base/check.h"

namespace baton::kv {

EvictionOrder::EvictionOrder(int64_t total) : links_(total + 1), ends_(static_cast<uint32_t>(total)) {
  links_[ends_] = {.previous = ends_, .next = ends_};
}

void EvictionOrder::Add(BlockId block) {
  BATON_CHECK(!contains(block)) << "block " << block.value();
  const uint32_t last = links_[ends_].previous;
  links_[block.value()] = {.previous = last, .next = ends_};
  links_[last].next = block.value();
  links_[ends_].previous = block.value();
  ++size_;
}

void EvictionOrder::Remove(BlockId block) {
  BATON_CHECK(contains(block)) << "block " << block.value();
  Link& link = links_[block.value()];
  links_[link.previous].next = link.next;
  links_[link.next].previous = link.previous;
  link = {};
  --size_;
}

BlockId EvictionOrder::First() const {
  BATON_CHECK(size_ > 0);
  return BlockId(links_[ends_].next);
}

void EvictionOrder::CheckRing() const {
  int64_t seen = 0;
  for (uint32_t at = links_[ends_].next; at != ends_; at = links_[at].next) {
    BATON_CHECK_EQ(links_[links_[at].next].previous, at);
    BATON_CHECK(++seen <= size_) << "of " << size_;
  }
  BATON_CHECK_EQ(seen, size_);
}

}  // namespace baton::kv
