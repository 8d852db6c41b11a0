// Queue: the choices that wait for a decode worker. Bounded by count and by bytes; the lower priority number
// first, first come first served within it; each with a deadline. Plain bookkeeping without a lock or a
// clock: its owner has both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/named_type.h"

namespace baton::router::admission {

// A waiting choice. Grows with arrival, so it is also the order of service.
using EntryId = NamedType<uint64_t, struct EntryIdTag>;

struct Entry {
  int priority = 0;
  int64_t bytes = 0;
  absl::Time deadline = absl::InfiniteFuture();
};

class Queue {
 public:
  struct Limits {
    int64_t entries = 1024;
    int64_t bytes = int64_t{256} << 20;
  };
  explicit Queue(Limits limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED, saying which limit, if `count` more entries of `bytes` in all don't fit.
  absl::Status CheckRoom(int64_t count, int64_t bytes) const;

  // At the end of its priority. The limits are not checked here.
  EntryId Add(const Entry& entry);
  // Back at its old place, after an attempt that did not work out. Beyond the limits too: it was admitted
  // once.
  void PutBack(EntryId id, const Entry& entry);
  // False if it is not there.
  bool Remove(EntryId id);

  std::optional<EntryId> First() const;
  // The one after `id` in order of service.
  std::optional<EntryId> After(EntryId id) const;
  // Removes and returns those whose deadline has come, earliest first.
  std::vector<EntryId> TakeExpired(absl::Time now);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t bytes() const { return bytes_; }
  bool empty() const { return entries_.empty(); }

 private:
  using Place = std::pair<int, EntryId>;  // priority, arrival

  const Limits limits_;
  uint64_t arrivals_ = 0;
  int64_t bytes_ = 0;
  absl::flat_hash_map<EntryId, Entry> entries_;
  std::set<Place> order_;
  std::set<std::pair<absl::Time, EntryId>> deadlines_;
};

}  // namespace baton::router::admission
