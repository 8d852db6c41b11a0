// EvictionOrder: which cached block goes next. Today by last use; a block's priority and expiry will be
// weighed here and nowhere else. A doubly linked list threaded through an array, so that every operation is
// O(1) and none allocates. Part of BlockPool; engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace baton::kv {

class EvictionOrder {
 public:
  // For blocks 0 to total - 1, none of which is in the order yet.
  explicit EvictionOrder(int64_t total);

  // The block was used just now: it goes last. It is not in the order.
  void Add(BlockId block);
  // The block is in the order.
  void Remove(BlockId block);
  // The block to evict next; the order is not empty. It stays until removed.
  BlockId First() const;

  bool contains(BlockId block) const { return links_[block.value()].next != kNone; }
  int64_t size() const { return size_; }

  // CHECK-fails if the links are not one ring of size() blocks. O(size).
  void CheckRing() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Link {
    uint32_t previous = kNone;
    uint32_t next = kNone;  // kNone: not in the order
  };

  // One link per block and, at `ends_`, the one that closes the ring: its next is the first block, its
  // previous the last.
  std::vector<Link> links_;
  const uint32_t ends_;
  int64_t size_ = 0;
};

}  // namespace baton::kv
