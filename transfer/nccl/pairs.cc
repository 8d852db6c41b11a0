#include "transfer/nccl/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace baton::transfer {

absl::StatusOr<Meeting> Pairs::Open(const Peer& peer, absl::FunctionRef<Meeting()> name, absl::Time now) {
  if (const auto found = pairs_.find(peer); found != pairs_.end()) {
    Pair& pair = found->second;
    if (pair.state != State::kQuarantined) {
      if (!pair.busy()) pair.last_used = now;  // a transfer follows: it is not the one to give up next
      return pair.meeting;
    }
    BATON_RETURN_IF_ERROR(Quarantined(pair, now));
  }
  return Start(peer, name(), 0, now).meeting;
}

absl::Status Pairs::Attend(const Meeting& meeting, absl::Time now) {
  const auto found = std::ranges::find_if(pairs_, [&](const auto& entry) {
    return entry.second.rank == 0 && entry.second.state != State::kQuarantined &&
           entry.second.meeting == meeting;
  });
  if (found == pairs_.end()) return absl::NotFoundError("this meeting is over: nothing waits for the peer");
  Pair& pair = found->second;
  if (pair.coming) {
    Drop(found, "the peer has given the pair up");
    return absl::NotFoundError("this meeting has been: the next transfer makes a new pair");
  }
  if (ids_ - ids_met_ >= options_.max_lost_ids) {
    const absl::Status refused = absl::ResourceExhaustedError(fmt::format(
        "{} ids of NCCL were made for peers that did not come, and each keeps a thread and a port until this "
        "worker restarts: see that workers reach each other on the ports that NCCL chooses",
        ids_ - ids_met_));
    Quarantine(found->first, pair, std::string(refused.message()), now);
    return refused;
  }
  pair.coming = true;
  pair.since = now;
  work_.makes.push_back({found->first, meeting});
  return absl::OkStatus();
}

absl::Status Pairs::Join(const Peer& peer, const Meeting& meeting, absl::Time now) {
  if (const auto found = pairs_.find(peer); found != pairs_.end()) {
    Pair& pair = found->second;
    pair.suspect = false;
    // The meeting that failed fails again: the peer will come with another one.
    if (pair.meeting == meeting && pair.state != State::kQuarantined) return absl::OkStatus();
    if (pair.state == State::kQuarantined) BATON_RETURN_IF_ERROR(Quarantined(pair, now));
    if (pair.meeting == meeting)
      return absl::UnavailableError(fmt::format("this pair has failed: {}", pair.why));
    Abort(pair);
    pair.state = State::kQuarantined;  // takes no place among those that are open
  }
  // Where another incarnation was before, it is no more, unless one address stands for several workers.
  for (auto& [other, pair] : pairs_) {
    if (other.sends && other.from == peer.from && other.incarnation != peer.incarnation) pair.suspect = true;
  }
  Start(peer, meeting, 1, now);
  work_.asks.push_back({peer, meeting});
  return absl::OkStatus();
}

Pairs::Pair& Pairs::Start(const Peer& peer, const Meeting& meeting, int rank, absl::Time now) {
  MakeRoom(peer.sends);
  Pair& pair = pairs_[peer];
  const absl::Duration quarantine = pair.quarantine;
  pair = Pair();
  pair.meeting = meeting;
  pair.rank = rank;
  pair.since = pair.last_used = now;
  pair.quarantine = quarantine;
  return pair;
}

Pairs::Pair* Pairs::At(const Peer& peer, const Meeting& meeting, State state) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.meeting != meeting || found->second.state != state) {
    return nullptr;
  }
  return &found->second;
}

bool Pairs::OnId(const Peer& peer, const Meeting& meeting, const absl::StatusOr<NcclId>& id, absl::Time now) {
  if (!peer.sends && id.ok()) ++ids_;
  Pair* const pair = At(peer, meeting, State::kMeeting);
  if (pair == nullptr) return false;
  if (absl::IsNotFound(id.status())) {
    Drop(pairs_.find(peer), std::string(id.status().message()));
    return false;
  }
  if (!id.ok()) {
    Quarantine(peer, *pair, fmt::format("no id for the meeting: {}", std::string(id.status().message())),
               now);
    return false;
  }
  pair->made = !peer.sends;
  pair->state = State::kJoining;
  pair->since = now;
  work_.joins.push_back({{peer, meeting}, *id, pair->rank});
  return true;
}

void Pairs::OnJoined(const Peer& peer, const Meeting& meeting,
                     const absl::StatusOr<Communicator>& communicator, absl::Time now) {
  Pair* const pair = At(peer, meeting, State::kJoining);
  if (pair == nullptr) {
    if (communicator.ok()) Abort(meeting, *communicator);  // it was given up meanwhile
    return;
  }
  if (communicator.ok()) {
    pair->communicator = *communicator;
  } else {
    Quarantine(peer, *pair, std::string(communicator.status().message()), now);
  }
}

void Pairs::OnEnded(const Meeting& meeting) {
  if (const auto found = ending_.find(meeting); found != ending_.end()) ending_.erase(found);
}

absl::Status Pairs::Quarantined(const Pair& pair, absl::Time now) const {
  const absl::Duration left = pair.since + pair.quarantine - now;
  if (left <= absl::ZeroDuration()) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("the nccl link to this peer failed ({}) and rests for another {} ms", pair.why,
                  absl::ToInt64Milliseconds(left)));
}

NcclState Pairs::Transfer(const Peer& peer, const Put& put, std::span<const TransferMemory> group,
                          absl::Time now) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.state == State::kQuarantined) return NcclState::kFailed;
  Pair& pair = found->second;
  if (pair.state != State::kReady) return NcclState::kBusy;
  const NcclState state = put(pair.communicator, group);
  if (state == NcclState::kFailed) {
    Quarantine(peer, pair, fmt::format("NCCL took no transfer: {}", api_.last_error(pair.communicator)), now);
  } else if (state == NcclState::kOk) {
    if (!pair.busy()) pair.last_used = now;  // the watchdog counts from the first that has not ended
    pair.put += std::ssize(group);
  }
  return state;
}

NcclState Pairs::Send(const Peer& peer, std::span<const TransferMemory> group, absl::Time now) {
  return Transfer(peer, api_.send, group, now);
}

NcclState Pairs::Receive(const Peer& peer, std::span<const TransferMemory> group, absl::Time now) {
  return Transfer(peer, api_.receive, group, now);
}

std::optional<int64_t> Pairs::Done(const Peer& peer, absl::Time now) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.state == State::kQuarantined) return std::nullopt;
  Pair& pair = found->second;
  if (!pair.busy()) return pair.done;
  int64_t done = 0;
  if (api_.done(pair.communicator, done) == NcclState::kFailed) {
    Quarantine(peer, pair, fmt::format("a transfer failed: {}", api_.last_error(pair.communicator)), now);
    return std::nullopt;
  }
  if (done > pair.done) {
    pair.done = done;
    pair.last_used = now;
    pair.quarantine = absl::ZeroDuration();  // it has proven itself
  }
  return pair.done;
}

std::string Pairs::TooSlow(const Pair& pair, absl::Time now) const {
  switch (pair.state) {
    case State::kMeeting:
      if (now - pair.since <= options_.meet_timeout) return "";
      return fmt::format("the peer and this worker have not agreed on a meeting within {} s",
                         absl::ToDoubleSeconds(options_.meet_timeout));
    case State::kJoining:
      if (now - pair.since <= options_.join_timeout) return "";
      return fmt::format("the peer has not joined within {} s", absl::ToDoubleSeconds(options_.join_timeout));
    case State::kReady:
      if (!pair.busy() || now - pair.last_used <= options_.transfer_timeout) return "";
      return fmt::format("no transfer has ended for {} s", absl::ToDoubleSeconds(options_.transfer_timeout));
    case State::kQuarantined:
      break;
  }
  return "";
}

bool Pairs::Idle(const Peer& peer, const Pair& pair, absl::Time now) const {
  if (pair.state != State::kReady || pair.busy()) return false;
  absl::Duration most = peer.sends ? 2 * options_.idle : options_.idle;
  if (pair.suspect) most = std::min(most, options_.suspect_idle);
  return now - pair.last_used > most;
}

std::vector<Pairs::Ended> Pairs::Poll(absl::Time now) {
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    auto& [peer, pair] = *it;
    if (pair.communicator != nullptr) {
      const NcclState state = api_.state(pair.communicator);
      if (state == NcclState::kFailed) {
        Quarantine(peer, pair, fmt::format("NCCL lost the peer: {}", api_.last_error(pair.communicator)),
                   now);
      } else if (state == NcclState::kOk && pair.state == State::kJoining) {
        pair.state = State::kReady;
        pair.since = pair.last_used = now;
        ++joined_;
        if (pair.made) ++ids_met_;
      }
    }
    if (std::string why = TooSlow(pair, now); !why.empty()) Quarantine(peer, pair, std::move(why), now);
    if (Idle(peer, pair, now)) {
      it = Drop(it, "it was not used");
    } else if (pair.state == State::kQuarantined &&
               now - pair.since > pair.quarantine + options_.remembered) {
      it = pairs_.erase(it);
    } else {
      ++it;
    }
  }
  return std::exchange(ended_now_, {});
}

void Pairs::Fail(const Peer& peer, std::string why, absl::Time now) {
  const auto found = pairs_.find(peer);
  if (found == pairs_.end() || found->second.state == State::kQuarantined) return;
  Quarantine(peer, found->second, std::move(why), now);
}

void Pairs::Quarantine(const Peer& peer, Pair& pair, std::string why, absl::Time now) {
  Abort(pair);
  pair.put = pair.done = 0;
  pair.state = State::kQuarantined;
  pair.since = now;
  pair.why = std::move(why);
  pair.quarantine = pair.quarantine == absl::ZeroDuration()
                        ? options_.first_quarantine
                        : std::min(2 * pair.quarantine, options_.longest_quarantine);
  ++failed_;
  ended_now_.push_back({peer, pair.meeting, pair.why});
}

void Pairs::Suspect(std::string_view from) {
  for (auto& [peer, pair] : pairs_) {
    if (peer.sends && peer.from == from) pair.suspect = true;
  }
}

Pairs::Map::iterator Pairs::Drop(Map::iterator pair, std::string why) {
  Abort(pair->second);
  ended_now_.push_back({pair->first, pair->second.meeting, std::move(why)});
  return pairs_.erase(pair);
}

void Pairs::Forget(const Peer& peer) {
  if (const auto found = pairs_.find(peer); found != pairs_.end()) Drop(found, "it was given up");
}

void Pairs::ForgetAll() {
  for (auto it = pairs_.begin(); it != pairs_.end();) it = Drop(it, "the link is closed");
}

void Pairs::Abort(Pair& pair) {
  if (pair.communicator == nullptr) return;
  Abort(pair.meeting, std::exchange(pair.communicator, nullptr));
}

void Pairs::Abort(const Meeting& meeting, Communicator communicator) {
  ending_.insert(meeting);
  work_.ends.push_back({meeting, communicator});
  ++aborted_;
}

void Pairs::MakeRoom(bool sends) {
  const size_t most = sends ? options_.max_receiving : options_.max_open;
  while (std::ranges::count_if(pairs_, [&](const auto& entry) {
           return entry.first.sends == sends && entry.second.state != State::kQuarantined;
         }) >= static_cast<std::ptrdiff_t>(most)) {
    auto oldest = pairs_.end();
    for (auto it = pairs_.begin(); it != pairs_.end(); ++it) {
      const auto& [peer, pair] = *it;
      if (peer.sends != sends || pair.busy() || pair.state != State::kReady) continue;
      if (oldest == pairs_.end() || pair.last_used < oldest->second.last_used) oldest = it;
    }
    if (oldest == pairs_.end()) return;  // all are at work: one more for a while, rather than none
    Drop(oldest, "others needed its place");
  }
}

std::optional<Pairs::State> Pairs::state(const Peer& peer) const {
  const auto found = pairs_.find(peer);
  return found == pairs_.end() ? std::nullopt : std::optional(found->second.state);
}

bool Pairs::holds(const Meeting& meeting) const {
  return ending_.contains(meeting) || std::ranges::any_of(pairs_, [&](const auto& entry) {
           return entry.second.communicator != nullptr && entry.second.meeting == meeting;
         });
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
