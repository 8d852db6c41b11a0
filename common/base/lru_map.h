// LruMap: a bounded number of values by text. Where one more would be too many, the value goes that was
// asked for longest ago. Keys count towards no bound: callers bound their length. One thread at a time.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace baton {

template <typename Value>
class LruMap {
 public:
  // At least 1 value.
  explicit LruMap(size_t capacity) : capacity_(capacity) {}
  LruMap(const LruMap&) = delete;
  LruMap& operator=(const LruMap&) = delete;

  // Null if it is not here. Valid until the next Put.
  Value* Find(std::string_view key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  // In place of the value that has the key, if there is one.
  void Put(std::string key, Value value) {
    if (Value* const there = Find(key); there != nullptr) {
      *there = std::move(value);
      return;
    }
    if (entries_.size() >= capacity_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(std::move(key), std::move(value));
    places_.emplace(entries_.front().first, entries_.begin());
  }

  size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<std::string, Value>>;
  const size_t capacity_;
  Entries entries_;  // the latest that was asked for first
  absl::flat_hash_map<std::string_view, typename Entries::iterator> places_;  // keys are those of entries_
};

}  // namespace baton
