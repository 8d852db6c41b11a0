#include "tests/fakes/faulty_fabric.h"

#include <algorithm>
#include <iterator>

namespace baton::transfer {

FaultyFabric::FaultyFabric(std::unique_ptr<Fabric> fabric, FabricFaults& faults)
    : fabric_(std::move(fabric)), faults_(faults) {
  absl::MutexLock lock(&faults_.mutex_);
  faults_.fabric_ = fabric_.get();
}

FaultyFabric::~FaultyFabric() {
  absl::MutexLock lock(&faults_.mutex_);
  faults_.fabric_ = nullptr;
}

absl::StatusOr<Fabric::Endpoint> FaultyFabric::Connect(const std::string& from, const std::string& address,
                                                       const std::string& payload_key,
                                                       const std::string& slot_key) {
  absl::MutexLock lock(&faults_.mutex_);
  if (faults_.refuse_) return absl::UnavailableError("no way to the peer");
  absl::StatusOr<Endpoint> endpoint = fabric_->Connect(from, address, payload_key, slot_key);
  if (endpoint.ok()) {
    open_.insert(*endpoint);
    ++faults_.connected_;
  }
  return endpoint;
}

void FaultyFabric::Read(Endpoint endpoint, Region region, uint64_t from, std::byte* to, int64_t bytes,
                        uint64_t number) {
  absl::MutexLock lock(&faults_.mutex_);
  if (faults_.held_.contains(region)) {
    waiting_.push_back({endpoint, region, from, to, bytes, number});
    faults_.held_now_ = static_cast<int>(waiting_.size());
    return;
  }
  if (region == Region::kPayloads) payloads_[number] = to;
  fabric_->Read(endpoint, region, from, to, bytes, number);
}

void FaultyFabric::Notify(Endpoint endpoint, std::string_view notice) {
  absl::MutexLock lock(&faults_.mutex_);
  if (!faults_.lose_) fabric_->Notify(endpoint, notice);
}

void FaultyFabric::Close(Endpoint endpoint) {
  absl::MutexLock lock(&faults_.mutex_);
  open_.erase(endpoint);
  // As a real one's: what was asked for and has not ended ends now, or, where a card still writes, late.
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->endpoint != endpoint) {
      ++it;
      continue;
    }
    late_.push_back({.kind = Event::Kind::kRead,
                     .number = it->number,
                     .status = absl::CancelledError("closed"),
                     .notice = {}});
    it = waiting_.erase(it);
  }
  faults_.held_now_ = static_cast<int>(waiting_.size());
  fabric_->Close(endpoint);
}

void FaultyFabric::Progress(std::vector<Event>& events) {
  absl::MutexLock lock(&faults_.mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (faults_.held_.contains(it->region)) {
      ++it;
      continue;
    }
    if (it->region == Region::kPayloads) payloads_[it->number] = it->to;
    fabric_->Read(it->endpoint, it->region, it->from, it->to, it->bytes, it->number);
    it = waiting_.erase(it);
  }
  faults_.held_now_ = static_cast<int>(waiting_.size());
  const size_t before = events.size();
  fabric_->Progress(events);
  for (size_t i = before; i < events.size(); ++i) {
    if (events[i].kind != Event::Kind::kRead) continue;
    const auto landed = payloads_.extract(events[i].number);
    if (!landed.empty() && events[i].status.ok() && std::exchange(faults_.damage_, false)) {
      landed.mapped()[0] ^= std::byte{16};
    }
  }
  if (!faults_.hold_closes_) {
    events.insert(events.end(), std::make_move_iterator(late_.begin()), std::make_move_iterator(late_.end()));
    late_.clear();
  }
  faults_.closes_held_now_ = static_cast<int>(late_.size());
  if (std::exchange(faults_.break_, false)) {
    for (const Endpoint endpoint : open_) {
      events.push_back({.kind = Event::Kind::kFailed,
                        .number = endpoint,
                        .status = absl::UnavailableError("the connection broke"),
                        .notice = {}});
    }
  }
}

}  // namespace baton::transfer
