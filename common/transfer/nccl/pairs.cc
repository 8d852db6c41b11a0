#include "common/transfer/nccl/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace baton::transfer {

Pairs::~Pairs() {
  for (auto& [peer, pair] : pairs_) {
    if (pair.communicator != nullptr) api_.abort(pair.communicator);
  }
}

absl::StatusOr<NcclId> Pairs::Open(const Peer& peer, absl::Time now) {
  if (const auto found = pairs_.find(peer); found != pairs_.end()) {
    Pair& pair = found->second;
    if (pair.state != State::kQuarantined) {
      if (!pair.busy()) pair.last_used = now;  // a transfer follows: it is not the one to give up next
      return pair.id;
    }
    BATON_RETURN_IF_ERROR(Quarantined(pair, now));
  }
  NcclId id = {};
  if (api_.make_id(id) == NcclState::kFailed) {
    return absl::InternalError(fmt::format("NCCL gave no id: {}", api_.last_error(nullptr)));
  }
  BATON_RETURN_IF_ERROR(Start(peer, id, 0, now));
  return id;
}

absl::Status Pairs::Join(const Peer& peer, const NcclId& id, absl::Time now) {
  if (const auto found = pairs_.find(peer); found != pairs_.end()) {
    Pair& pair = found->second;
    // The id that failed fails again: the peer will come with another one.
    if (pair.id == id && pair.state != State::kQuarantined) return absl::OkStatus();
    if (pair.state == State::kQuarantined) BATON_RETURN_IF_ERROR(Quarantined(pair, now));
    if (pair.id == id) return absl::UnavailableError(fmt::format("this pair has failed: {}", pair.why));
    Abort(pair);
  }
  return Start(peer, id, 1, now);
}

absl::Status Pairs::Start(const Peer& peer, const NcclId& id, int rank, absl::Time now) {
  MakeRoom();
  Pair& pair = pairs_[peer];
  pair.id = id;
  pair.state = State::kJoining;
  pair.since = pair.last_used = now;
  pair.put = pair.done = 0;
  if (api_.join(id, rank, pair.communicator) == NcclState::kFailed) {
    End(peer, pair, fmt::format("NCCL can't join: {}", api_.last_error(pair.communicator)), now);
    return absl::UnavailableError(pair.why);
  }
  return absl::OkStatus();
}

absl::Status Pairs::Quarantined(const Pair& pair, absl::Time now) const {
  const absl::Duration left = pair.since + pair.quarantine - now;
  if (left <= absl::ZeroDuration()) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("the nccl link to this peer failed ({}) and rests for another {} ms", pair.why,
                  absl::ToInt64Milliseconds(left)));
}

NcclState Pairs::Transfer(const Peer& peer, absl::Time now,
                          const std::function<NcclState(Communicator)>& put) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.state == State::kQuarantined) return NcclState::kFailed;
  Pair& pair = found->second;
  if (pair.state == State::kJoining) return NcclState::kBusy;
  const NcclState state = put(pair.communicator);
  if (state == NcclState::kFailed) {
    End(peer, pair, fmt::format("NCCL took no transfer: {}", api_.last_error(pair.communicator)), now);
  } else if (state == NcclState::kOk) {
    if (!pair.busy()) pair.last_used = now;  // the watchdog counts from the first that has not ended
    ++pair.put;
  }
  return state;
}

NcclState Pairs::Send(const Peer& peer, const std::byte* data, size_t bytes, absl::Time now) {
  return Transfer(peer, now, [&](Communicator communicator) { return api_.send(communicator, data, bytes); });
}

NcclState Pairs::Receive(const Peer& peer, std::byte* data, size_t bytes, absl::Time now) {
  return Transfer(peer, now,
                  [&](Communicator communicator) { return api_.receive(communicator, data, bytes); });
}

std::optional<int64_t> Pairs::Done(const Peer& peer, absl::Time now) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.state == State::kQuarantined) return std::nullopt;
  Pair& pair = found->second;
  if (!pair.busy()) return pair.done;
  int64_t done = 0;
  if (api_.done(pair.communicator, done) == NcclState::kFailed) {
    End(peer, pair, fmt::format("a transfer failed: {}", api_.last_error(pair.communicator)), now);
    return std::nullopt;
  }
  if (done > pair.done) {
    pair.done = done;
    pair.last_used = now;
    pair.quarantine = absl::ZeroDuration();  // it has proven itself
  }
  return pair.done;
}

std::vector<Pairs::Peer> Pairs::Poll(absl::Time now) {
  for (auto& [peer, pair] : pairs_) {
    if (pair.communicator == nullptr) continue;
    const NcclState state = api_.state(pair.communicator);
    if (state == NcclState::kFailed) {
      End(peer, pair, fmt::format("NCCL lost the peer: {}", api_.last_error(pair.communicator)), now);
    } else if (pair.state == State::kJoining) {
      if (state == NcclState::kOk) {
        pair.state = State::kReady;
        pair.since = pair.last_used = now;
        ++joined_;
      } else if (now - pair.since > options_.join_timeout) {
        End(peer, pair,
            fmt::format("the peer has not joined within {} s", absl::ToDoubleSeconds(options_.join_timeout)),
            now);
      }
    } else if (pair.busy() && now - pair.last_used > options_.transfer_timeout) {
      End(peer, pair,
          fmt::format("no transfer has ended for {} s", absl::ToDoubleSeconds(options_.transfer_timeout)),
          now);
    }
  }
  std::erase_if(pairs_, [&](const auto& entry) {
    const Pair& pair = entry.second;
    return pair.state == State::kQuarantined && now - pair.since > pair.quarantine + options_.remembered;
  });
  return std::exchange(failed_now_, {});
}

void Pairs::Fail(const Peer& peer, std::string why, absl::Time now) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.state == State::kQuarantined) return;
  End(peer, found->second, std::move(why), now);
}

void Pairs::End(const Peer& peer, Pair& pair, std::string why, absl::Time now) {
  Abort(pair);
  pair.put = pair.done = 0;
  pair.state = State::kQuarantined;
  pair.since = now;
  pair.why = std::move(why);
  pair.quarantine = pair.quarantine == absl::ZeroDuration()
                        ? options_.first_quarantine
                        : std::min(2 * pair.quarantine, options_.longest_quarantine);
  ++failed_;
  failed_now_.push_back(peer);
}

void Pairs::Forget(const Peer& peer) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end()) return;
  Abort(found->second);
  pairs_.erase(found);
}

void Pairs::Abort(Pair& pair) {
  if (pair.communicator == nullptr) return;
  api_.abort(pair.communicator);
  pair.communicator = nullptr;
  ++aborted_;
}

void Pairs::MakeRoom() {
  while (open() >= options_.max_open) {
    auto oldest = pairs_.end();
    for (auto it = pairs_.begin(); it != pairs_.end(); ++it) {
      const auto& [peer, pair] = *it;
      if (peer.sends || pair.busy() || pair.state != State::kReady) continue;
      if (oldest == pairs_.end() || pair.last_used < oldest->second.last_used) oldest = it;
    }
    if (oldest == pairs_.end()) return;  // all are at work: one more for a while, rather than none
    Abort(oldest->second);
    pairs_.erase(oldest);
  }
}

std::optional<Pairs::State> Pairs::state(const Peer& peer) const {
  const auto found = pairs_.find(peer);
  return found == pairs_.end() ? std::nullopt : std::optional(found->second.state);
}

std::string Pairs::reason(const Peer& peer) const {
  const auto found = pairs_.find(peer);
  return found == pairs_.end() ? "" : found->second.why;
}

size_t Pairs::quarantined() const {
  return static_cast<size_t>(std::ranges::count_if(
      pairs_, [](const auto& entry) { return entry.second.state == State::kQuarantined; }));
}

int64_t Pairs::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& [peer, pair] : pairs_) {
    if (pair.communicator != nullptr) bytes += api_.memory(pair.communicator);
  }
  return bytes;
}

size_t Pairs::open() const {
  return static_cast<size_t>(
      std::ranges::count_if(pairs_, [](const auto& entry) { return entry.second.communicator != nullptr; }));
}

}  // namespace baton::transfer
