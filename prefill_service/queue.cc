#include "prefill_service/queue.h"

#include "common/base/check.h"

namespace baton::prefill_service {

using forecast::VirtualDeadline;

void Queue::Insert(Waiting& waiting) {
  waiting.late = false;
  waiting.place.due = waiting.deadline.due;
  order_.insert(waiting.place);
  if (waiting.deadline.latest < absl::InfiniteFuture()) {
    in_time_.emplace(waiting.deadline.latest, waiting.place.id);
  }
}

void Queue::Erase(const Waiting& waiting) {
  order_.erase(waiting.place);
  if (!waiting.late) in_time_.erase({waiting.deadline.latest, waiting.place.id});
}

void Queue::Add(JobId id, const VirtualDeadline& deadline) {
  const Place place{.due = deadline.due, .arrival = ++arrivals_, .id = id};
  const auto [added, is_new] = waiting_.emplace(id, Waiting{.place = place, .deadline = deadline});
  BATON_CHECK(is_new) << "prompt " << id << " waits already";
  Insert(added->second);
}

void Queue::Move(JobId id, const VirtualDeadline& deadline) {
  const auto found = waiting_.find(id);
  BATON_CHECK(found != waiting_.end()) << "prompt " << id << " does not wait";
  Erase(found->second);
  found->second.deadline = deadline;
  Insert(found->second);
}

void Queue::Advance(absl::Time now) {
  while (!in_time_.empty() && in_time_.begin()->first < now) {
    Waiting& waiting = waiting_.at(in_time_.begin()->second);
    Erase(waiting);
    waiting.late = true;
    waiting.place.due = waiting.deadline.late;
    order_.insert(waiting.place);
  }
}

bool Queue::Remove(JobId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return false;
  Erase(found->second);
  waiting_.erase(found);
  return true;
}

std::optional<JobId> Queue::First() const {
  if (order_.empty()) return std::nullopt;
  return order_.begin()->id;
}

std::optional<JobId> Queue::After(JobId id) const {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return std::nullopt;
  const auto next = order_.upper_bound(found->second.place);
  if (next == order_.end()) return std::nullopt;
  return next->id;
}

}  // namespace baton::prefill_service
