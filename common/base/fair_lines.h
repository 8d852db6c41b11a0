// FairLines: things that wait, in a line for each owner. Lines take turns, one thing at a time, so an owner
// that has much here waits for itself and holds up no other; within a line the first to come goes first. A
// line that is empty takes no memory. One thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"

namespace baton {

template <typename Item>
class FairLines {
 public:
  static constexpr size_t kNoBound = std::numeric_limits<size_t>::max();
  // capacity: of things in all lines together.
  explicit FairLines(size_t capacity = kNoBound) : capacity_(capacity) {}

  // False, and `item` is as it was: the owner has as many things here as there is room left for, so that
  // owners with fewer find some.
  [[nodiscard]] bool Push(const std::string& owner, Item& item) {
    const auto found = lines_.find(owner);
    const size_t has = found == lines_.end() ? 0 : found->second.size();
    if (has >= capacity_ - size_) return false;
    if (has == 0) turns_.push_back(owner);
    lines_[owner].push_back(std::move(item));
    ++size_;
    return true;
  }

  // There is one.
  Item Pop() {
    BATON_CHECK(!empty());
    std::string owner = std::move(turns_.front());
    turns_.pop_front();
    const auto line = lines_.find(owner);
    Item item = std::move(line->second.front());
    line->second.pop_front();
    --size_;
    if (line->second.empty()) {
      lines_.erase(line);
    } else {
      turns_.push_back(std::move(owner));
    }
    return item;
  }

  bool empty() const { return size_ == 0; }

 private:
  const size_t capacity_;
  size_t size_ = 0;
  absl::flat_hash_map<std::string, std::deque<Item>> lines_;  // none is empty
  std::deque<std::string> turns_;                             // owners of lines, the next one first
};

}  // namespace baton
