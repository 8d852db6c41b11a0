// Queue: the prompts that wait on a prefill worker, in the order in which they are served: by virtual
// deadline (common/forecast/prefill_forecast.h), equals by arrival. Plain bookkeeping without a clock: its
// owner says when a prompt came and how long it will take, and may correct the latter when more of its prefix
// has become cached. Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace baton::prefill_service {

using JobId = uint64_t;

class Queue {
 public:
  // The order of service: a due time of InfinitePast goes before everything else.
  void Add(JobId id, absl::Time due);
  // A new due time; the place among equals stays.
  void Move(JobId id, absl::Time due);
  // False if it does not wait.
  bool Remove(JobId id);

  std::optional<JobId> First() const;
  // The one served after `id`.
  std::optional<JobId> After(JobId id) const;

  size_t size() const { return order_.size(); }
  bool empty() const { return order_.empty(); }

 private:
  struct Place {
    absl::Time due;
    uint64_t arrival;
    JobId id;
    friend auto operator<=>(const Place& a, const Place& b) {
      if (a.due != b.due) return a.due < b.due ? std::strong_ordering::less : std::strong_ordering::greater;
      return a.arrival <=> b.arrival;
    }
    friend bool operator==(const Place& a, const Place& b) = default;
  };

  std::set<Place> order_;
  absl::flat_hash_map<JobId, Place> places_;
  uint64_t arrivals_ = 0;
};

}  // namespace baton::prefill_service
