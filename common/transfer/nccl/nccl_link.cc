#include "common/transfer/nccl/nccl_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"

namespace baton::transfer {
namespace {

// Sizes of staging buffers, four to a doubling, so that few of them serve all chunks.
int64_t RoundUp(int64_t bytes) {
  const int64_t least = std::max<int64_t>(bytes, 16 << 10);
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(least))) / 4;
  return (least + step - 1) / step * step;
}

// Transfers that may have ended here and not there, and are still told of: NCCL buffers small ones.
constexpr size_t kToldAfterTheEnd = 64;
constexpr int kMaxTold = 4096;

int64_t SizeOf(auto pieces) {
  int64_t bytes = 0;
  for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

// Ties a message to its payload: what is said of it, and to whom.
uint32_t HeaderCrc(const v1::KvChunk& chunk) {
  const v1::PayloadApart& apart = chunk.apart();
  return Crc32c(fmt::format("{} {} {} {} {} {} {}", chunk.incarnation(), chunk.ticket_id(), apart.sender(),
                            apart.epoch(), apart.sequence(), apart.bytes(),
                            fmt::join(apart.before().begin(), apart.before().end(), ",")) +
                apart.meeting());
}

}  // namespace

NcclLink::NcclLink(NcclApi api, Payload& payload, const Clock& clock, Incarnation self, Post post,
                   const NcclLinkOptions& options)
    : api_(std::move(api)),
      payload_(payload),
      clock_(clock),
      self_(self),
      post_(std::move(post)),
      options_(options),
      pairs_(api_, options.pairs),
      thread_([this] { Work(); }) {}

void NcclLink::Close() {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  thread_.join();
  std::map<Peer, Lane> lanes;
  std::vector<std::shared_ptr<Transfer>> untold;
  {
    absl::MutexLock lock(&mutex_);
    lanes.swap(lanes_);
    untold.swap(untold_);
    // Nothing is on its way into what goes away next.
    for (const auto& [peer, lane] : lanes) pairs_.Forget(peer);
  }
  const auto end = [](Transfer& transfer) {
    if (transfer.done != nullptr) transfer.done(absl::CancelledError("the nccl link is closed"));
  };
  for (const auto& transfer : untold) end(*transfer);
  for (auto& [peer, lane] : lanes) {
    for (Numbered* numbered : {&lane.under_way, &lane.waiting}) {
      for (auto& [sequence, transfer] : *numbered) end(transfer);
    }
  }
}

absl::StatusOr<NcclLink::Staging> NcclLink::TakeStaging(int64_t bytes) {
  const int64_t size = RoundUp(bytes);
  if (const auto fits = spare_.find(size); fits != spare_.end()) {
    Staging staging = std::move(fits->second);
    spare_.erase(fits);
    staging_in_use_ += size;
    return staging;
  }
  // Those of other sizes go before the link takes more.
  while (staging_bytes_ + size > options_.staging_bytes && !spare_.empty()) {
    staging_bytes_ -= spare_.begin()->first;
    spare_.erase(spare_.begin());
  }
  if (staging_bytes_ + size > options_.staging_bytes) {
    return absl::UnavailableError(
        fmt::format("the nccl link has {} bytes of staging memory, and {} more are wanted: the peer is slow",
                    options_.staging_bytes, size));
  }
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer memory, payload_.Stage(size));
  staging_bytes_ += size;
  staging_in_use_ += size;
  return Staging{std::move(memory), size};
}

void NcclLink::GiveBack(Staging staging) {
  if (staging.memory == nullptr) return;
  const bool before = Congested();
  staging_in_use_ -= staging.bytes;
  spare_.emplace(staging.bytes, std::move(staging));
  if (before && !Congested()) (void)post_([] {});
}

bool NcclLink::congested() const {
  absl::MutexLock lock(&mutex_);
  return Congested();
}

absl::Status NcclLink::Ship(ConstPieces pieces, v1::KvChunk& chunk) {
  const int64_t bytes = SizeOf(pieces);
  const Peer peer{Incarnation(chunk.incarnation()), false};
  absl::MutexLock lock(&mutex_);
  BATON_ASSIGN_OR_RETURN(const NcclId id, pairs_.Open(peer, clock_.Now()));
  Lane& lane = lanes_[peer];
  if (lane.epoch == 0 || lane.id != id) {
    Clear(peer, lane, "a new pair was made with the peer");
    lane.id = id;
    lane.epoch = ++epochs_;
    lane.next = 0;
    lane.sent.clear();
  }
  BATON_ASSIGN_OR_RETURN(Staging staging, TakeStaging(bytes + payload_.TrailerBytes(bytes)));
  payload_.Pack(pieces, staging.memory.get());
  v1::PayloadApart& apart = *chunk.mutable_apart();
  apart.set_sender(self_.value());
  apart.set_epoch(lane.epoch);
  apart.set_meeting(std::string(reinterpret_cast<const char*>(id.data()), id.size()));
  apart.set_sequence(lane.next);
  apart.set_bytes(static_cast<uint64_t>(bytes));
  while (lane.sent.size() > lane.waiting.size() + lane.under_way.size() + kToldAfterTheEnd) {
    lane.sent.pop_front();
  }
  for (const int64_t size : lane.sent) apart.add_before(static_cast<uint64_t>(size));
  chunk.set_crc32c(HeaderCrc(chunk));
  lane.sent.push_back(bytes);
  Transfer& transfer = lane.waiting[lane.next++];
  transfer.staging = std::move(staging);
  transfer.bytes = bytes;
  return absl::OkStatus();
}

void NcclLink::Receive(const v1::KvChunk& chunk, Pieces pieces, Done done) {
  if (absl::Status expected = Expect(chunk, pieces, done); !expected.ok()) done(std::move(expected));
}

absl::Status NcclLink::Note(const v1::PayloadApart& apart, Lane& lane, absl::Time now) {
  const auto told = static_cast<uint64_t>(apart.before_size());
  if (apart.before_size() > kMaxTold || told > apart.sequence()) {
    return absl::DataLossError(fmt::format("transfer {} tells of {} before it", apart.sequence(), told));
  }
  const auto note = [&](uint64_t sequence, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (sequence < lane.next || lane.waiting.contains(sequence)) return;
    Transfer& transfer = lane.waiting[sequence];
    transfer.bytes = static_cast<int64_t>(bytes);
    transfer.since = now;
  };
  for (uint64_t i = 0; i < told; ++i) {
    note(apart.sequence() - told + i, apart.before(static_cast<int>(i)));
  }
  note(apart.sequence(), apart.bytes());
  return absl::OkStatus();
}

absl::Status NcclLink::Expect(const v1::KvChunk& chunk, Pieces pieces, Done& done) {
  const v1::PayloadApart& apart = chunk.apart();
  const std::string where =
      fmt::format("chunk of ticket {} at block {}", chunk.ticket_id(), chunk.first_block());
  if (!chunk.has_apart() || apart.meeting().size() != NcclId{}.size()) {
    return absl::DataLossError(
        fmt::format("{}: its payload should come by the nccl link: do both workers have the "
                    "same --link?",
                    where));
  }
  if (HeaderCrc(chunk) != chunk.crc32c()) return absl::DataLossError(where + ": checksum of its header");
  NcclId id;
  std::memcpy(id.data(), apart.meeting().data(), id.size());
  const Peer peer{Incarnation(apart.sender()), true};
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  Lane& lane = lanes_[peer];
  if (apart.epoch() < lane.epoch) {
    return absl::UnavailableError(where + ": the pair has been made again since it was sent");
  }
  BATON_RETURN_IF_ERROR(pairs_.Join(peer, id, now));
  if (apart.epoch() > lane.epoch) {
    Clear(peer, lane, "the peer made a new pair");
    lane.id = id;
    lane.epoch = apart.epoch();
    lane.next = 0;
  }
  BATON_RETURN_IF_ERROR(Note(apart, lane, now));
  const int64_t bytes = SizeOf(pieces);
  if (apart.bytes() != static_cast<uint64_t>(bytes)) {
    return absl::DataLossError(
        fmt::format("{} has {} bytes where its blocks take {}", where, apart.bytes(), bytes));
  }
  for (Numbered* numbered : {&lane.strays, &lane.under_way, &lane.waiting}) {
    const auto found = numbered->find(apart.sequence());
    if (found == numbered->end() || found->second.done != nullptr) continue;
    Transfer& transfer = found->second;
    transfer.pieces.assign(pieces.begin(), pieces.end());
    transfer.done = std::move(done);
    if (numbered == &lane.strays) {
      Tell(std::move(transfer), absl::OkStatus());
      numbered->erase(found);
    }
    return absl::OkStatus();
  }
  return absl::DataLossError(
      fmt::format("{}: transfer {} has come twice, or its message too late", where, apart.sequence()));
}

void NcclLink::Tell(Transfer transfer, absl::Status status) {
  const auto shared = std::make_shared<Transfer>(std::move(transfer));
  // The staging memory returns once the engine thread has read it.
  const bool posted = post_([this, shared, status = std::move(status)]() mutable {
    if (status.ok()) status = payload_.Unpack(shared->staging.memory.get(), shared->bytes, shared->pieces);
    {
      absl::MutexLock lock(&mutex_);
      if (status.ok()) received_bytes_ += shared->bytes;
      GiveBack(std::move(shared->staging));
    }
    shared->done(std::move(status));
  });
  if (!posted) untold_.push_back(shared);
}

void NcclLink::Clear(const Peer& peer, Lane& lane, const std::string& why) {
  for (Numbered* numbered : {&lane.under_way, &lane.waiting, &lane.strays}) {
    for (auto& [sequence, transfer] : *numbered) {
      if (transfer.done != nullptr) {
        Tell(std::move(transfer), absl::UnavailableError("nccl link: " + why));
      } else {
        GiveBack(std::move(transfer.staging));
      }
    }
    numbered->clear();
  }
  lane.finished = 0;
  if (!peer.sends) (void)post_([] {});  // for its metrics
}

bool NcclLink::Put(const Peer& peer, Lane& lane, absl::Time now) {
  bool moved = false;
  // A sender's transfers wait without gaps; a receiver's are put in the order of their numbers only.
  while (!lane.waiting.empty() && (!peer.sends || lane.waiting.begin()->first == lane.next)) {
    Transfer& transfer = lane.waiting.begin()->second;
    const int64_t bytes = transfer.bytes + payload_.TrailerBytes(transfer.bytes);
    if (pairs_.state(peer) != Pairs::State::kReady) break;
    if (transfer.staging.memory == nullptr) {
      auto staging = TakeStaging(bytes);
      if (!staging.ok()) break;  // until some comes back, or the watchdog's patience ends
      transfer.staging = *std::move(staging);
    }
    std::byte* const data = transfer.staging.memory.get();
    const NcclState state = peer.sends ? pairs_.Receive(peer, data, static_cast<size_t>(bytes), now)
                                       : pairs_.Send(peer, data, static_cast<size_t>(bytes), now);
    if (state != NcclState::kOk) break;  // not yet; a failure is told by Poll
    lane.under_way.insert(lane.waiting.extract(lane.waiting.begin()));
    if (peer.sends) ++lane.next;
    moved = true;
  }
  if (peer.sends && !lane.waiting.empty() && pairs_.state(peer) == Pairs::State::kReady &&
      now - lane.waiting.begin()->second.since > options_.pairs.transfer_timeout) {
    pairs_.Fail(peer,
                lane.waiting.begin()->first == lane.next
                    ? std::string("no staging memory came back in time")
                    : fmt::format("transfer {} was never announced", lane.next),
                now);
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
      GiveBack(std::move(transfer.staging));
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
    GiveBack(std::move(transfer.staging));
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
  for (const Peer& peer : pairs_.Poll(now)) {
    moved = true;
    if (const auto found = lanes_.find(peer); found != lanes_.end())
      Clear(peer, found->second, pairs_.reason(peer));
  }
  // Of peers that are forgotten nothing stays.
  std::erase_if(lanes_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Lane& lane = entry.second;
    return !pairs_.state(entry.first).has_value() && lane.waiting.empty() && lane.under_way.empty() &&
           lane.strays.empty();
  });
  return moved;
}

bool NcclLink::Sending() const {
  return std::ranges::any_of(lanes_, [](const auto& entry) {
    return !entry.first.sends && (!entry.second.waiting.empty() || !entry.second.under_way.empty());
  });
}

void NcclLink::Flush(absl::Duration max) {
  absl::MutexLock lock(&mutex_);
  const auto quiet = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !Sending(); };
  mutex_.AwaitWithTimeout(absl::Condition(&quiet), max);
}

bool NcclLink::Busy() const {
  return std::ranges::any_of(lanes_, [](const auto& entry) {
    return !entry.second.waiting.empty() || !entry.second.under_way.empty();
  });
}

void NcclLink::Work() {
  absl::MutexLock lock(&mutex_);
  const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || Busy(); };
  absl::Duration pause = options_.poll;
  while (!stopping_) {
    if (Advance()) {
      pause = options_.poll;
      continue;
    }
    // While transfers are in progress NCCL has to be asked; without any, pairs are still watched now and
    // then.
    if (Busy()) {
      const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
      mutex_.AwaitWithTimeout(absl::Condition(&stopped), pause);
      pause = std::min(2 * pause, options_.longest_poll);
    } else {
      mutex_.AwaitWithTimeout(absl::Condition(&awake), absl::Milliseconds(200));
    }
  }
}

NcclLink::Counts NcclLink::counts() const {
  absl::MutexLock lock(&mutex_);
  return {.open_pairs = pairs_.open(),
          .quarantined = pairs_.quarantined(),
          .joined = pairs_.joined_total(),
          .failed = pairs_.failed_total(),
          .aborted = pairs_.aborted_total(),
          .sent_bytes = sent_bytes_,
          .received_bytes = received_bytes_,
          .dropped_bytes = dropped_bytes_,
          .communicator_bytes = pairs_.memory_bytes(),
          .staging_bytes = staging_bytes_,
          .staging_in_use = staging_in_use_};
}

}  // namespace baton::transfer
