#include "router/admission/queue.h"

#include <fmt/format.h>

#include "common/base/check.h"

namespace baton::router::admission {

absl::Status Queue::CheckRoom(int64_t count, int64_t bytes) const {
  if (size() + count > limits_.entries) {
    return absl::ResourceExhaustedError(
        fmt::format("the admission queue is full: {} of {} requests wait", size(), limits_.entries));
  }
  if (bytes_ + bytes > limits_.bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("the admission queue is full: {} of {} bytes of prompts wait", bytes_, limits_.bytes));
  }
  return absl::OkStatus();
}

EntryId Queue::Add(const Entry& entry) {
  const EntryId id(++arrivals_);
  PutBack(id, entry);
  return id;
}

void Queue::PutBack(EntryId id, const Entry& entry) {
  BATON_CHECK(id.value() <= arrivals_ && entries_.emplace(id, entry).second) << "entry " << id.value();
  order_.emplace(entry.priority, id);
  deadlines_.emplace(entry.deadline, id);
  bytes_ += entry.bytes;
}

bool Queue::Remove(EntryId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  order_.erase({found->second.priority, id});
  deadlines_.erase({found->second.deadline, id});
  bytes_ -= found->second.bytes;
  entries_.erase(found);
  return true;
}

std::optional<EntryId> Queue::First() const {
  if (order_.empty()) return std::nullopt;
  return order_.begin()->second;
}

std::optional<EntryId> Queue::After(EntryId id) const {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return std::nullopt;
  const auto next = order_.upper_bound({found->second.priority, id});
  if (next == order_.end()) return std::nullopt;
  return next->second;
}

std::vector<EntryId> Queue::TakeExpired(absl::Time now) {
  std::vector<EntryId> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    Remove(expired.back());
  }
  return expired;
}

}  // namespace baton::router::admission
