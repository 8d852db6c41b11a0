#include "transfer/ucx/held_payloads.h"

#include <algorithm>
#include <utility>

#include "common/base/random.h"

namespace baton::transfer {

HeldPayloads::HeldPayloads(std::span<Slot> slots) : slots_(slots) {
  for (size_t i = slots.size(); i > 0; --i) free_.push_back(i - 1);
}

std::optional<HeldPayloads::Place> HeldPayloads::Hold(const Payload& payload, bool complete) {
  if (free_.empty()) return std::nullopt;
  uint64_t name = 0;
  do {
    name = RandomU64() | 1;
  } while (held_.contains(name));
  const size_t slot = free_.back();
  free_.pop_back();
  held_.emplace(name, Held{payload, slot, complete});
  if (!complete) incomplete_.emplace(payload.pack, name);
  slots_[slot].store(complete ? name : name - 1, std::memory_order_release);
  return Place{name, &slots_[slot]};
}

void HeldPayloads::Completed(uint64_t pack) {
  while (!incomplete_.empty() && incomplete_.begin()->first <= pack) {
    const uint64_t name = incomplete_.begin()->second;
    incomplete_.erase(incomplete_.begin());
    Held& held = held_.at(name);
    held.complete = true;
    slots_[held.slot].store(name, std::memory_order_release);
  }
}

std::optional<uint64_t> HeldPayloads::incomplete() const {
  if (incomplete_.empty()) return std::nullopt;
  return incomplete_.begin()->first;
}

HeldPayloads::Payload HeldPayloads::Take(Map::iterator held) {
  // Before anything else is written where it lies.
  slots_[held->second.slot].store(0, std::memory_order_seq_cst);
  free_.push_back(held->second.slot);
  if (!held->second.complete) incomplete_.erase(held->second.payload.pack);
  const Payload payload = held->second.payload;
  held_.erase(held);
  return payload;
}

std::optional<HeldPayloads::Payload> HeldPayloads::Read(uint64_t name, absl::Time now) {
  const auto found = held_.find(name);
  if (found == held_.end()) return std::nullopt;
  last_read_[found->second.payload.receiver.value()] = now;
  return Take(found);
}

std::vector<HeldPayloads::Payload> HeldPayloads::TakeOf(Incarnation receiver, TicketId ticket) {
  std::vector<Payload> taken;
  for (auto it = held_.begin(); it != held_.end();) {
    const auto held = it++;
    const Payload& payload = held->second.payload;
    if (payload.receiver == receiver && payload.ticket == ticket) taken.push_back(Take(held));
  }
  return taken;
}

std::vector<HeldPayloads::Payload> HeldPayloads::TakeStale(absl::Time now, absl::Duration patience) {
  std::vector<Payload> taken;
  for (auto it = held_.begin(); it != held_.end();) {
    const auto held = it++;
    const Payload& payload = held->second.payload;
    const auto read = last_read_.find(payload.receiver.value());
    const absl::Time alive = read == last_read_.end() ? payload.since : std::max(payload.since, read->second);
    if (now - alive > patience) taken.push_back(Take(held));
  }
  std::erase_if(last_read_, [&](const auto& entry) { return now - entry.second > patience; });
  return taken;
}

}  // namespace baton::transfer
