#include "prefill_service/queue.h"

#include "common/base/check.h"

namespace baton::prefill_service {

void Queue::Add(JobId id, absl::Time due) {
  const Place place{.due = due, .arrival = ++arrivals_, .id = id};
  BATON_CHECK(places_.emplace(id, place).second) << "prompt " << id << " waits already";
  order_.insert(place);
}

void Queue::Move(JobId id, absl::Time due) {
  const auto found = places_.find(id);
  BATON_CHECK(found != places_.end()) << "prompt " << id << " does not wait";
  order_.erase(found->second);
  found->second.due = due;
  order_.insert(found->second);
}

bool Queue::Remove(JobId id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return false;
  order_.erase(found->second);
  places_.erase(found);
  return true;
}

std::optional<JobId> Queue::First() const {
  if (order_.empty()) return std::nullopt;
  return order_.begin()->id;
}

std::optional<JobId> Queue::After(JobId id) const {
  const auto found = places_.find(id);
  if (found == places_.end()) return std::nullopt;
  const auto next = order_.upper_bound(found->second);
  if (next == order_.end()) return std::nullopt;
  return next->id;
}

}  // namespace baton::prefill_service
