// Queue: the prompts that wait on a prefill worker, in the order in which they are served: by virtual
// deadline (protocol/forecast/prefill_forecast.h), equals by arrival. A prompt that has waited too long to
// meet its target makes way once for those that can. Plain bookkeeping without a clock: its owner says what
// time it is, when a prompt is due, and may correct that when more of its prefix has become cached. Engine
// thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "protocol/forecast/prefill_forecast.h"

namespace baton::prefill_service {

using JobId = uint64_t;

class Queue {
 public:
  // The order of service: a due time of InfinitePast goes before everything else.
  void Add(JobId id, const forecast::VirtualDeadline& deadline);
  // A new deadline; the place among equals stays.
  void Move(JobId id, const forecast::VirtualDeadline& deadline);
  // It is `now`: those whose latest time to begin has passed are late. O(log n) for each of them, once.
  void Advance(absl::Time now);
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

  struct Waiting {
    Place place;
    forecast::VirtualDeadline deadline;
    bool late = false;
  };

  void Insert(Waiting& waiting);
  void Erase(const Waiting& waiting);

  std::set<Place> order_;
  std::set<std::pair<absl::Time, JobId>> in_time_;  // by the latest time to begin
  absl::flat_hash_map<JobId, Waiting> waiting_;
  uint64_t arrivals_ = 0;
};

}  // namespace baton::prefill_service
