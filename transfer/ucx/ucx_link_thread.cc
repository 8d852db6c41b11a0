// The half of UcxLink that its own thread runs.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transfer/ucx/ucx_link.h"

namespace baton::transfer {

void UcxLink::TakeNotices(absl::Time now) {
  for (const std::string& notice : reads_.TakeNotices()) {
    uint64_t name = 0;
    if (notice.size() != sizeof name) continue;
    std::memcpy(&name, notice.data(), sizeof name);
    const std::optional<HeldPayloads::Payload> payload = held_.Read(name, now);
    if (!payload.has_value()) continue;
    counts_.sent_bytes += payload->bytes;
    GiveBack(payload->run);
    if (held_.size() == 0) (void)post_([] {});  // for its metrics
  }
}

bool UcxLink::AdvanceHeld(absl::Time now) {
  bool moved = false;
  while (held_.incomplete().has_value() && payload_.Packed(*held_.incomplete())) {
    held_.Completed(*held_.incomplete());
    moved = true;
  }
  while (!packing_.empty() && payload_.Packed(packing_.front().first)) {
    GiveBack(packing_.front().second);
    packing_.pop_front();
    moved = true;
  }
  for (const HeldPayloads::Payload& payload : held_.TakeStale(now, 2 * options_.reads.timeout)) {
    GiveUp(payload);
    moved = true;
  }
  if (moved) (void)post_([] {});  // for its metrics
  return moved;
}

bool UcxLink::Turn() {
  std::vector<Reads::Request> asked;
  std::vector<std::string> suspects;
  {
    absl::MutexLock lock(&mutex_);
    asked.swap(asked_);
    suspects.swap(suspects_);
  }
  const absl::Time now = clock_.Now();
  for (Reads::Request& request : asked) reads_.Begin(std::move(request), now);
  for (const std::string& suspect : suspects) reads_.Suspect(suspect, now);
  bool moved = reads_.Advance(now) || !asked.empty();
  std::vector<Reads::Ended> ended = reads_.TakeEnded();
  Unpacked unpacked;
  {
    absl::MutexLock lock(&mutex_);
    TakeNotices(now);
    moved |= AdvanceHeld(now);
    for (Reads::Ended& read : ended) Tell(std::move(read));
    for (auto& [landed, status] : TakeUnpacked()) {
      moved = true;
      if (!post_([landed = landed, status = status] { landed->request.done(status); })) {
        untold_.push_back(landed);
      }
    }
    counts_.connections = reads_.connections();
    counts_.resting = reads_.resting();
    counts_.connected = reads_.connected_total();
    counts_.failed = reads_.failed_total();
    counts_.gone = reads_.gone_total();
  }
  return moved;
}

absl::Duration UcxLink::Pause() {
  const absl::Duration pause = reads_.Pause();
  absl::MutexLock lock(&mutex_);
  if (!asked_.empty()) return absl::ZeroDuration();
  // Nobody tells when a GPU has packed or unpacked.
  const bool ask = held_.incomplete().has_value() || !packing_.empty() || !unpacking_.empty();
  return ask ? std::min(pause, options_.reads.look) : pause;
}

void UcxLink::Work() {
  payload_.Enter();
  const auto stopping = [this] {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  };
  while (!stopping()) {
    if (!Turn()) fabric_->Wait(Pause());
  }
  // Waits for reads of closed connections; those left by then end with the fabric, before the memory.
  reads_.Close(clock_.Now());
  const MonotonicClock machine;
  const absl::Time begun = machine.Now();
  do {
    (void)Turn();
    if (fabric_->idle()) break;
    fabric_->Wait(absl::Milliseconds(1));
  } while (machine.Now() - begun < options_.close_timeout);
}

}  // namespace baton::transfer
