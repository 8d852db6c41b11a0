#include "common/transfer/nccl/nccl_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "fmt/format.h"

namespace baton::transfer {
namespace {

// Sizes of staging buffers, so that few of them serve all chunks.
int64_t RoundUp(int64_t bytes) {
  constexpr int64_t kStep = int64_t{256} << 10;
  return (bytes + kStep - 1) / kStep * kStep;
}

int64_t SizeOf(auto pieces) {
  int64_t bytes = 0;
  for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

// Ties a message to its payload: what is said of it, and to whom.
uint32_t HeaderCrc(const v1::KvChunk& chunk) {
  const v1::PayloadApart& apart = chunk.apart();
  return Crc32c(fmt::format("{} {} {} {} {} {}", chunk.incarnation(), chunk.ticket_id(), apart.sender(),
                            apart.epoch(), apart.sequence(), apart.bytes()) +
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

NcclLink::~NcclLink() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  std::map<Peer, Lane> lanes;
  {
    absl::MutexLock lock(&mutex_);
    lanes.swap(lanes_);
  }
  const auto end = [](Transfer& transfer) {
    if (transfer.done != nullptr) transfer.done(absl::CancelledError("the nccl link is closed"));
  };
  for (auto& [peer, lane] : lanes) {
    for (Transfer& transfer : lane.under_way) end(transfer);
    for (auto& [sequence, transfer] : lane.waiting) end(transfer);
  }
}

absl::StatusOr<NcclLink::Staging> NcclLink::TakeStaging(int64_t bytes) {
  const auto fits =
      std::ranges::find_if(spare_, [bytes](const Staging& spare) { return spare.bytes >= bytes; });
  if (fits != spare_.end()) {
    Staging staging = std::move(*fits);
    spare_.erase(fits);
    return staging;
  }
  const int64_t size = RoundUp(bytes);
  // Too small ones go before the link takes more.
  while (staging_bytes_ + size > options_.staging_bytes && !spare_.empty()) {
    staging_bytes_ -= spare_.back().bytes;
    spare_.pop_back();
  }
  if (staging_bytes_ + size > options_.staging_bytes) {
    return absl::UnavailableError(
        fmt::format("the nccl link has {} bytes of staging memory, all in use: the peer is "
                    "slow, or the limit is low",
                    options_.staging_bytes));
  }
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer memory, payload_.memory().Allocate(size));
  staging_bytes_ += size;
  return Staging{std::move(memory), size};
}

void NcclLink::GiveBack(Staging staging) { spare_.push_back(std::move(staging)); }

absl::Status NcclLink::Ship(ConstPieces pieces, v1::KvChunk& chunk) {
  const int64_t bytes = SizeOf(pieces);
  const Peer peer{Incarnation(chunk.incarnation()), false};
  absl::MutexLock lock(&mutex_);
  BATON_ASSIGN_OR_RETURN(const NcclId id, pairs_.Open(peer, clock_.Now()));
  Lane& lane = lanes_[peer];
  if (lane.id != id) {
    Clear(peer, lane, "the peer is met anew");
    lane.id = id;
    ++lane.epoch;
    lane.next = 0;
  }
  BATON_ASSIGN_OR_RETURN(Staging staging, TakeStaging(bytes + payload_.TrailerBytes(bytes)));
  payload_.Pack(pieces, staging.memory.get());
  v1::PayloadApart& apart = *chunk.mutable_apart();
  apart.set_sender(self_.value());
  apart.set_epoch(lane.epoch);
  apart.set_meeting(std::string(reinterpret_cast<const char*>(id.data()), id.size()));
  apart.set_sequence(lane.next);
  apart.set_bytes(static_cast<uint64_t>(bytes));
  chunk.set_crc32c(HeaderCrc(chunk));
  Transfer& transfer = lane.waiting[lane.next++];
  transfer.staging = std::move(staging);
  transfer.bytes = bytes;
  return absl::OkStatus();
}

void NcclLink::Receive(const v1::KvChunk& chunk, Pieces pieces, Done done) {
  if (absl::Status expected = Expect(chunk, pieces, done); !expected.ok()) done(std::move(expected));
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
  const int64_t bytes = SizeOf(pieces);
  if (apart.bytes() != static_cast<uint64_t>(bytes)) {
    return absl::DataLossError(
        fmt::format("{} has {} bytes where its blocks take {}", where, apart.bytes(), bytes));
  }
  NcclId id;
  std::memcpy(id.data(), apart.meeting().data(), id.size());
  const Peer peer{Incarnation(apart.sender()), true};
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  Lane& lane = lanes_[peer];
  if (apart.epoch() < lane.epoch) {
    return absl::UnavailableError(where + ": the nccl link has begun anew since it was sent");
  }
  BATON_RETURN_IF_ERROR(pairs_.Join(peer, id, now));
  if (apart.epoch() > lane.epoch) {
    Clear(peer, lane, "the peer began anew");
    lane.id = id;
    lane.epoch = apart.epoch();
    lane.next = 0;
  }
  if (apart.sequence() < lane.next || lane.waiting.contains(apart.sequence())) {
    return absl::DataLossError(fmt::format("{}: transfer {} has come twice", where, apart.sequence()));
  }
  BATON_ASSIGN_OR_RETURN(Staging staging, TakeStaging(bytes + payload_.TrailerBytes(bytes)));
  Transfer& transfer = lane.waiting[apart.sequence()];
  transfer.staging = std::move(staging);
  transfer.bytes = bytes;
  transfer.pieces.assign(pieces.begin(), pieces.end());
  transfer.done = std::move(done);
  transfer.arrived = now;
  return absl::OkStatus();
}

void NcclLink::Tell(Transfer transfer, absl::Status status) {
  // The staging memory returns once the engine thread has read it.
  (void)post_([this, transfer = std::move(transfer), status = std::move(status)]() mutable {
    if (status.ok()) status = payload_.Unpack(transfer.staging.memory.get(), transfer.bytes, transfer.pieces);
    {
      absl::MutexLock lock(&mutex_);
      if (status.ok()) received_bytes_ += transfer.bytes;
      GiveBack(std::move(transfer.staging));
    }
    transfer.done(std::move(status));
  });
}

void NcclLink::Clear(const Peer& peer, Lane& lane, const std::string& why) {
  const auto end = [&](Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (peer.sends) {
      Tell(std::move(transfer), absl::UnavailableError("nccl link: " + why));
    } else {
      GiveBack(std::move(transfer.staging));
    }
  };
  for (Transfer& transfer : lane.under_way) end(transfer);
  for (auto& [sequence, transfer] : lane.waiting) end(transfer);
  lane.under_way.clear();
  lane.waiting.clear();
  lane.finished = 0;
}

bool NcclLink::AdvanceLane(const Peer& peer, Lane& lane, absl::Time now) {
  bool moved = false;
  // A sender's transfers wait without gaps; a receiver's are put in the order of their numbers only.
  while (!lane.waiting.empty() && (!peer.sends || lane.waiting.begin()->first == lane.next)) {
    Transfer& transfer = lane.waiting.begin()->second;
    const auto bytes = static_cast<size_t>(transfer.bytes + payload_.TrailerBytes(transfer.bytes));
    if (!peer.sends) payload_.OrderAfter();
    const NcclState state = peer.sends ? pairs_.Receive(peer, transfer.staging.memory.get(), bytes, now)
                                       : pairs_.Send(peer, transfer.staging.memory.get(), bytes, now);
    if (state != NcclState::kOk) break;  // not joined yet; a failure is told by Poll
    lane.under_way.push_back(std::move(transfer));
    lane.waiting.erase(lane.waiting.begin());
    if (peer.sends) ++lane.next;
    moved = true;
  }
  if (!lane.under_way.empty()) {
    const std::optional<int64_t> done = pairs_.Done(peer, now);
    while (done.has_value() && lane.finished < *done && !lane.under_way.empty()) {
      Transfer transfer = std::move(lane.under_way.front());
      lane.under_way.pop_front();
      ++lane.finished;
      moved = true;
      if (peer.sends) {
        Tell(std::move(transfer), absl::OkStatus());
      } else {
        sent_bytes_ += transfer.bytes;
        GiveBack(std::move(transfer.staging));
      }
    }
  }
  if (peer.sends && !lane.waiting.empty() && lane.waiting.begin()->first != lane.next &&
      now - lane.waiting.begin()->second.arrived > options_.pairs.transfer_timeout) {
    pairs_.Fail(peer, fmt::format("transfer {} was never announced", lane.next), now);
  }
  return moved;
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
  return moved;
}

bool NcclLink::Busy() const {
  return std::ranges::any_of(lanes_, [](const auto& entry) {
    return !entry.second.waiting.empty() || !entry.second.under_way.empty();
  });
}

void NcclLink::Work() {
  absl::MutexLock lock(&mutex_);
  const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || Busy(); };
  while (!stopping_) {
    if (Advance()) continue;
    // While transfers are under way NCCL has to be asked; without any, pairs are still watched now and then.
    if (Busy()) {
      const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
      mutex_.AwaitWithTimeout(absl::Condition(&stopped), options_.poll);
    } else {
      mutex_.AwaitWithTimeout(absl::Condition(&awake), absl::Milliseconds(200));
    }
  }
}

NcclLink::Counts NcclLink::counts() const {
  absl::MutexLock lock(&mutex_);
  return {.open_pairs = pairs_.open(),
          .joined = pairs_.joined_total(),
          .failed = pairs_.failed_total(),
          .sent_bytes = sent_bytes_,
          .received_bytes = received_bytes_};
}

}  // namespace baton::transfer
