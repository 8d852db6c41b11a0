// The half of NcclLink that its own thread runs: putting and completing transfers, watching pairs, and
// handing out what may block.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transfer/nccl/nccl_link.h"

namespace baton::transfer {
namespace {

// A group costs one launch, and its transfers are done when all of them are: large enough that launches don't
// count, small enough that the peer's engine has work early and staging memory comes back.
constexpr size_t kMostOfAGroup = 16;
constexpr int64_t kBytesOfAGroup = int64_t{16} << 20;

// Pauses of some microseconds end 50 us late with the default.
void SleepExactly() { (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

}  // namespace

void NcclLink::GiveBackReleased() {
  while (!packing_.empty() && payload_.Packed(packing_.front().first)) {
    GiveBack(packing_.front().second);
    packing_.pop_front();
  }
  for (auto it = held_.begin(); it != held_.end();) {
    const auto next = held_.upper_bound(it->first);
    if (pairs_.holds(it->first)) {
      it = next;
      continue;
    }
    while (it != next) {
      GiveBack(it->second);
      it = held_.erase(it);
    }
  }
}

NcclLink::Announcements NcclLink::TakeReady() {
  Announcements ready;
  while (!unready_.empty() && payload_.Packed(unready_.front().first)) {
    ready.push_back(std::move(unready_.front().second));
    unready_.pop_front();
  }
  return ready;
}

bool NcclLink::Stage(const Lane& lane, Transfer& transfer) {
  if (transfer.staging.data != nullptr) return true;
  const int64_t bytes = transfer.bytes + payload_.TrailerBytes(transfer.bytes);
  // A lane whose peer announces much and sends late leaves room for the others: one share more is kept than
  // there are lanes that receive.
  int64_t own = 0, lanes = 0;
  for (const Numbered* numbered : {&lane.under_way, &lane.waiting}) {
    for (const auto& [number, other] : *numbered) own += other.staging.bytes;
  }
  for (const auto& [peer, other] : lanes_) lanes += peer.sends && other.busy() ? 1 : 0;
  if (own > 0 && own + Staging::Size(bytes) > staging_.bytes() / (lanes + 1)) return false;
  const std::optional<Staging::Run> run = staging_.Take(bytes);
  if (!run.has_value()) return false;
  transfer.staging = *run;
  return true;
}

bool NcclLink::MayReceive(Lane& lane) {
  size_t receiving = 0, before = 0;
  bool others_wait = false;
  for (const auto& [peer, other] : lanes_) {
    if (!peer.sends) continue;
    receiving += other.under_way.empty() ? 0 : 1;
    if (&other == &lane || other.asked == 0) continue;
    others_wait = true;
    before += lane.asked == 0 || other.asked < lane.asked ? 1 : 0;
  }
  if (!lane.under_way.empty()) return !others_wait;
  if (receiving + before < options_.most_receiving) {
    lane.asked = 0;
    return true;
  }
  if (lane.asked == 0) lane.asked = ++asks_;
  return false;
}

std::vector<TransferMemory> NcclLink::NextGroup(const Peer& peer, Lane& lane) {
  std::vector<TransferMemory> group;
  int64_t bytes = 0;
  uint64_t next = lane.next;
  for (auto& [number, transfer] : lane.waiting) {
    if (group.size() == kMostOfAGroup || bytes >= kBytesOfAGroup) break;
    // A sender's transfers wait without gaps; a receiver's are put in the order of their numbers only. A send
    // is put when its payload is there: on the stream it would wait for the step that packs it, and keep the
    // peer's multiprocessors spinning.
    if (peer.sends ? number != next++ || !Stage(lane, transfer) : !payload_.Packed(transfer.pack)) break;
    const int64_t own = transfer.bytes + payload_.TrailerBytes(transfer.bytes);
    group.push_back({transfer.staging.data, static_cast<size_t>(own)});
    bytes += own;
  }
  return group;
}

bool NcclLink::Put(const Peer& peer, Lane& lane, absl::Time now) {
  bool moved = false;
  while (!lane.waiting.empty() && pairs_.state(peer) == Pairs::State::kReady) {
    const std::vector<TransferMemory> group = NextGroup(peer, lane);
    if (group.empty() || (peer.sends && !MayReceive(lane))) break;
    const NcclState state = peer.sends ? pairs_.Receive(peer, group, now) : pairs_.Send(peer, group, now);
    if (state == NcclState::kBusy) break;
    // After a failure, which Poll tells, NCCL may have begun them all the same.
    for (size_t i = 0; i < group.size(); ++i) {
      lane.under_way.insert(lane.waiting.extract(lane.waiting.begin()));
    }
    if (peer.sends) lane.next += group.size();
    moved = true;
    if (state == NcclState::kFailed) return moved;
  }
  if (peer.sends && !lane.waiting.empty() && pairs_.state(peer) == Pairs::State::kReady) {
    const auto& [number, first] = *lane.waiting.begin();
    // While memory comes back, who waits for some has a turn to come, and its peer is not to blame.
    const bool next = number == lane.next;
    const absl::Time since = next ? std::max(first.since, room_since_) : first.since;
    if (now - since > options_.pairs.transfer_timeout) {
      pairs_.Fail(peer,
                  next ? std::string("no staging memory came back in time")
                       : fmt::format("transfer {} was never announced", lane.next),
                  now);
    }
  }
  return moved;
}

bool NcclLink::Complete(const Peer& peer, Lane& lane, absl::Time now) {
  if (lane.under_way.empty()) return false;
  bool moved = false;
  const std::optional<int64_t> done = pairs_.Done(peer, now);
  while (done.has_value() && lane.finished < *done && !lane.under_way.empty()) {
    auto node = lane.under_way.extract(lane.under_way.begin());
    Transfer& transfer = node.mapped();
    ++lane.finished;
    moved = true;
    if (!peer.sends) {
      sent_bytes_ += transfer.bytes;
      GiveBack(transfer.staging);
    } else if (transfer.done != nullptr) {
      Tell(std::move(transfer), absl::OkStatus());
    } else {
      transfer.since = now;
      lane.strays.insert(std::move(node));
    }
  }
  // A receiver's engine hears of each transfer; a sender's of the last one, for its metrics.
  if (moved && !peer.sends && lane.under_way.empty() && lane.waiting.empty()) (void)post_([] {});
  return moved;
}

void NcclLink::DropStrays(Lane& lane, absl::Time now) {
  // The oldest come first.
  while (!lane.strays.empty() && now - lane.strays.begin()->second.since > options_.pairs.transfer_timeout) {
    Transfer& transfer = lane.strays.begin()->second;
    dropped_bytes_ += transfer.bytes;
    GiveBack(transfer.staging);
    lane.strays.erase(lane.strays.begin());
  }
}

bool NcclLink::AdvanceLane(const Peer& peer, Lane& lane, absl::Time now) {
  const bool put = Put(peer, lane, now);
  const bool completed = Complete(peer, lane, now);
  DropStrays(lane, now);
  return put || completed;
}

bool NcclLink::Advance() {
  const absl::Time now = clock_.Now();
  bool moved = false;
  for (auto& [peer, lane] : lanes_) moved |= AdvanceLane(peer, lane, now);
  for (const Pairs::Ended& ended : pairs_.Poll(now)) {
    moved = true;
    const auto found = lanes_.find(ended.peer);
    if (found != lanes_.end() && found->second.meeting == ended.meeting) {
      Clear(ended.peer, found->second, ended.why);
    }
  }
  GiveBackReleased();
  for (auto& [transfer, status] : TakeUnpacked()) {
    moved = true;
    if (!post_([transfer = transfer, status = status] { transfer->done(status); }))
      untold_.push_back(transfer);
  }
  // Lanes of forgotten peers go.
  std::erase_if(lanes_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !pairs_.state(entry.first).has_value() && !entry.second.busy() && entry.second.strays.empty();
  });
  return moved;
}

void NcclLink::WatchCalls() {
  const bool late = calls_.Oldest() > options_.call_deadline;
  if (late != fault_.empty()) return;
  fault_ = late ? fmt::format(
                      "NCCL has not come back from a call for {} s: this worker takes no more "
                      "transfers and should be restarted",
                      absl::ToDoubleSeconds(options_.call_deadline))
                : "";
  (void)post_([] {});
}

bool NcclLink::Sending() const {
  return std::ranges::any_of(lanes_,
                             [](const auto& entry) { return !entry.first.sends && entry.second.busy(); });
}

bool NcclLink::Busy() const {
  return !unpacking_.empty() || !unready_.empty() ||
         std::ranges::any_of(lanes_, [](const auto& entry) { return entry.second.busy(); });
}

void NcclLink::Work() {
  SleepExactly();
  payload_.Enter();
  absl::Duration pause = options_.poll;
  while (true) {
    Pairs::Work work;
    Announcements ready;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      WatchCalls();
      ready = TakeReady();
      const bool moved = Advance() || !ready.empty();
      work = pairs_.TakeWork();
      if (moved) pause = options_.poll;
      if (!moved && work.empty()) {
        // While transfers are in progress NCCL has to be asked; without any, pairs are still watched now and
        // then.
        const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return stopping_ || pairs_.has_work();
        };
        const auto awake = [this, &woken]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken() || Busy(); };
        if (Busy()) {
          mutex_.AwaitWithTimeout(absl::Condition(&woken), pause);
          pause = std::min(2 * pause, options_.longest_poll);
        } else {
          mutex_.AwaitWithTimeout(absl::Condition(&awake), absl::Milliseconds(200));
        }
      }
    }
    for (auto& then : ready) then();
    Begin(std::move(work));
  }
}

void NcclLink::Begin(Pairs::Work work) {
  for (const auto& ask : work.asks) AskFor(ask);
  for (const auto& make : work.makes) MakeId(make);
  for (const auto& join : work.joins) Join(join);
  End(work.ends);
}

void NcclLink::AskFor(const Pairs::Work::At& at) {
  (void)post_([this, at] {
    ask_(at.peer.from, at.meeting, [this, at](const absl::StatusOr<std::string>& answer) {
      absl::StatusOr<NcclId> id = NcclId{};
      if (!answer.ok()) {
        id = answer.status();
      } else if (answer->size() != id->size()) {
        id = absl::InternalError(fmt::format("it has {} bytes", answer->size()));
      } else {
        std::memcpy(id->data(), answer->data(), id->size());
      }
      absl::MutexLock lock(&mutex_);
      pairs_.OnId(at.peer, at.meeting, id, clock_.Now());
    });
  });
}

void NcclLink::MakeId(const Pairs::Work::At& at) {
  calls_.Run([this, at] {
    absl::StatusOr<NcclId> id = NcclId{};
    if (api_.make_id(*id) == NcclState::kFailed) {
      id = absl::InternalError(fmt::format("NCCL gave no id: {}", api_.last_error(nullptr)));
    }
    absl::MutexLock lock(&mutex_);
    const bool meets = pairs_.OnId(at.peer, at.meeting, id, clock_.Now());
    auto asked = asked_.extract(at.meeting);
    if (asked.empty()) return;
    absl::StatusOr<std::string> answer = absl::NotFoundError("this meeting has ended");
    if (!id.ok()) {
      answer = id.status();
    } else if (meets) {
      answer = std::string(reinterpret_cast<const char*>(id->data()), id->size());
    }
    (void)post_([tell = std::move(asked.mapped()), answer = std::move(answer)]() mutable {
      tell(std::move(answer));
    });
  });
}

void NcclLink::Join(const Pairs::Work::Joins& join) {
  calls_.Run([this, join] {
    Communicator made = nullptr;
    absl::StatusOr<Communicator> communicator = made;
    if (api_.join(join.id, join.rank, made) == NcclState::kFailed) {
      communicator = absl::UnavailableError(fmt::format("NCCL can't join: {}", api_.last_error(nullptr)));
    } else {
      communicator = made;
    }
    absl::MutexLock lock(&mutex_);
    pairs_.OnJoined(join.peer, join.meeting, communicator, clock_.Now());
  });
}

void NcclLink::End(const std::vector<Pairs::Work::Ends>& ends) {
  if (ends.empty()) return;
  calls_.Run([this, ends] {
    std::vector<Communicator> communicators;
    for (const auto& end : ends) communicators.push_back(end.communicator);
    api_.abort(communicators);
    absl::MutexLock lock(&mutex_);
    for (const auto& end : ends) pairs_.OnEnded(end.meeting);
    GiveBackReleased();
  });
}

}  // namespace baton::transfer
