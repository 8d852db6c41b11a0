#include "transfer/nccl/nccl_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/random.h"
#include "common/base/status.h"

namespace baton::transfer {
namespace {

// Transfers that may have ended here and not there, and are still told of: NCCL buffers small ones.
constexpr size_t kToldAfterTheEnd = 64;
constexpr int kMaxTold = 4096;

int64_t SizeOf(auto pieces) {
  int64_t bytes = 0;
  for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

// Ties a message to its payload: what is said of it, and to whom.
uint32_t HeaderCrc(const fleet::v1::KvChunk& chunk) {
  const fleet::v1::PayloadApart& apart = chunk.apart();
  return Crc32c(fmt::format("{} {} {} {} {} {} {}", chunk.incarnation(), chunk.ticket_id(), apart.sender(),
                            apart.epoch(), apart.sequence(), apart.bytes(),
                            fmt::join(apart.before().begin(), apart.before().end(), ",")) +
                apart.meeting());
}

Meeting NewMeeting() {
  static_assert(kMeetingBytes == 2 * sizeof(uint64_t));
  Meeting name(kMeetingBytes, '\0');
  for (size_t at = 0; at < kMeetingBytes; at += sizeof(uint64_t)) {
    const uint64_t bits = RandomU64();
    std::memcpy(name.data() + at, &bits, sizeof bits);
  }
  return name;
}

// A thread that is inside NCCL can be neither ended nor left behind.
void GiveUp(const NcclLinkOptions& options, const std::string& why) {
  if (options.give_up != nullptr) {
    options.give_up(why);
    return;
  }
  fmt::print(stderr, "nccl link: {}: the process ends without waiting for it\n", why);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclLink>> NcclLink::Create(NcclApi api, Payload& payload, const Clock& clock,
                                                           Incarnation self, Post post, Ask ask,
                                                           const NcclLinkOptions& options) {
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer slab, payload.Stage(options.staging_bytes));
  return std::unique_ptr<NcclLink>(new NcclLink(std::move(api), payload, clock, self, std::move(post),
                                                std::move(ask), options, std::move(slab)));
}

NcclLink::NcclLink(NcclApi api, Payload& payload, const Clock& clock, Incarnation self, Post post, Ask ask,
                   const NcclLinkOptions& options, device::Memory::Buffer slab)
    : api_(std::move(api)),
      payload_(payload),
      clock_(clock),
      self_(self),
      post_(std::move(post)),
      ask_(std::move(ask)),
      options_(options),
      pairs_(api_, options.pairs),
      staging_(std::move(slab), options.staging_bytes),
      calls_(clock),
      thread_([this] { Work(); }) {}

std::string NcclLink::Pairing(int version) { return fmt::format("nccl/{}", version); }

void NcclLink::Close() {
  Lanes lanes;
  std::vector<std::shared_ptr<Transfer>> untold;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  thread_.join();
  std::deque<std::pair<uint64_t, absl::AnyInvocable<void()>>> unready;
  {
    absl::MutexLock lock(&mutex_);
    unready.swap(unready_);
    lanes.swap(lanes_);
    untold.swap(untold_);
    for (auto& [number, transfer] : unpacking_) untold.push_back(std::move(transfer));
    unpacking_.clear();
    pairs_.ForgetAll();
  }
  for (auto& [pack, then] : unready) then();  // streams end in their order; what they announce fails
  // Nothing is on its way into what goes away next; a join that returns meanwhile leaves one more to abort.
  const absl::Time begun = clock_.Now();
  while (true) {
    Pairs::Work work;
    {
      absl::MutexLock lock(&mutex_);
      work = pairs_.TakeWork();
    }
    End(work.ends);
    if (work.ends.empty() && calls_.AwaitIdle(absl::Milliseconds(20))) {
      absl::MutexLock lock(&mutex_);
      if (!pairs_.has_work()) break;
    }
    if (clock_.Now() - begun <= options_.call_deadline) continue;
    GiveUp(options_, "NCCL does not come back from its last calls");
    break;
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

void NcclLink::GiveBack(const Staging::Run& run) {
  if (run.data == nullptr) return;
  staging_.GiveBack(run);
  room_since_ = clock_.Now();
  if (std::exchange(wanted_, false)) (void)post_([] {});
}

int64_t NcclLink::Footprint(int64_t bytes) const {
  return Staging::Size(bytes + payload_.TrailerBytes(bytes));
}

NcclLink::Share NcclLink::ShareOf(Incarnation receiver) const {
  std::map<uint64_t, int64_t> used = {{receiver.value(), 0}};
  for (const auto& [peer, lane] : lanes_) {
    if (peer.sends || !lane.busy()) continue;
    int64_t& bytes = used[peer.incarnation.value()];
    for (const Numbered* numbered : {&lane.waiting, &lane.under_way}) {
      for (const auto& [number, transfer] : *numbered) bytes += transfer.staging.bytes;
    }
  }
  for (const auto& [key, run] : reserved_) used[key.first] += run.bytes;
  return {.bytes = staging_.bytes() / (std::ssize(used) + 1), .used = used[receiver.value()]};
}

int64_t NcclLink::Reserve(const protocol::Ticket& ticket, int64_t least, int64_t most) {
  absl::MutexLock lock(&mutex_);
  EndReservation(ticket);
  const Share share = ShareOf(ticket.incarnation);
  int64_t bytes = std::min({most, share.bytes - share.used, staging_.longest()});
  // A peer with nothing in flight gets at least `least`. Others wait for a good part of their share, rather
  // than go on by small pieces.
  if (share.used == 0) bytes = std::max(bytes, std::min(least, staging_.longest()));
  const bool small = share.used > 0 && bytes < std::min(most, share.bytes / 2);
  if (bytes >= least && !small) {
    reserved_[{ticket.incarnation.value(), ticket.id.value()}] =
        *staging_.Take(bytes / Staging::kUnit * Staging::kUnit);
    return bytes;
  }
  if (staging_.in_use() == 0) return most;  // there will never be more: Ship says so
  wanted_ = true;
  return 0;
}

void NcclLink::Unreserve(const protocol::Ticket& ticket) {
  absl::MutexLock lock(&mutex_);
  EndReservation(ticket);
}

void NcclLink::EndReservation(const protocol::Ticket& ticket) {
  const auto found = reserved_.find({ticket.incarnation.value(), ticket.id.value()});
  if (found == reserved_.end()) return;
  if (found->second.bytes > 0) GiveBack(found->second);
  reserved_.erase(found);
}

absl::Status NcclLink::Usable() const {
  return fault_.empty() ? absl::OkStatus() : absl::UnavailableError("nccl link: " + fault_);
}

absl::Status NcclLink::Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) {
  const int64_t bytes = SizeOf(pieces);
  const Peer peer{Incarnation(chunk.incarnation()), false, ""};
  absl::MutexLock lock(&mutex_);
  BATON_RETURN_IF_ERROR(Usable());
  BATON_ASSIGN_OR_RETURN(const Meeting meeting, pairs_.Open(peer, NewMeeting, clock_.Now()));
  Lane& lane = lanes_[peer];
  if (lane.meeting != meeting) {
    Clear(peer, lane, "a new pair was made with the peer");
    lane.meeting = meeting;
    lane.epoch = ++epochs_;
    lane.next = 0;
    lane.sent.clear();
  }
  const int64_t footprint = Footprint(bytes);
  const auto reserved = reserved_.find({chunk.incarnation(), chunk.ticket_id()});
  std::optional<Staging::Run> run;
  if (reserved != reserved_.end() && reserved->second.bytes >= footprint) {
    run = Staging::TakeFront(reserved->second, footprint);
  } else {
    run = staging_.Take(footprint);
  }
  if (!run.has_value()) {
    return absl::UnavailableError(fmt::format(
        "the nccl link has {} bytes of staging memory, {} in use, and {} more are wanted: the peer is slow",
        staging_.bytes(), staging_.in_use(), footprint));
  }
  last_pack_ = payload_.Pack(pieces, run->data);
  fleet::v1::PayloadApart& apart = *chunk.mutable_apart();
  apart.set_sender(self_.value());
  apart.set_epoch(lane.epoch);
  apart.set_meeting(meeting);
  apart.set_sequence(lane.next);
  apart.set_bytes(static_cast<uint64_t>(bytes));
  while (lane.sent.size() > lane.waiting.size() + lane.under_way.size() + kToldAfterTheEnd) {
    lane.sent.pop_front();
  }
  for (const int64_t size : lane.sent) apart.add_before(static_cast<uint64_t>(size));
  chunk.set_crc32c(HeaderCrc(chunk));
  lane.sent.push_back(bytes);
  Transfer& transfer = lane.waiting[lane.next++];
  transfer.staging = *run;
  transfer.bytes = bytes;
  transfer.pack = last_pack_;
  return absl::OkStatus();
}

void NcclLink::WhenReady(absl::AnyInvocable<void()> then) {
  absl::MutexLock lock(&mutex_);
  unready_.emplace_back(last_pack_, std::move(then));  // even if that has ended: one thread keeps the order
}

void NcclLink::Meet(const std::string& meeting, Answer answer) {
  absl::Status attending;
  {
    absl::MutexLock lock(&mutex_);
    attending = stopping_ ? absl::UnavailableError("this worker is leaving") : Usable();
    if (attending.ok()) attending = pairs_.Attend(meeting, clock_.Now());
    if (attending.ok()) asked_[meeting] = std::move(answer);
  }
  if (!attending.ok()) answer(std::move(attending));
}

void NcclLink::Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) {
  if (absl::Status expected = Expect(chunk, from, pieces, done); !expected.ok()) done(std::move(expected));
}

void NcclLink::Suspect(std::string_view from) {
  absl::MutexLock lock(&mutex_);
  pairs_.Suspect(from);
}

absl::Status NcclLink::Note(const fleet::v1::PayloadApart& apart, Lane& lane, absl::Time now) {
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

NcclLink::Peer NcclLink::PeerOf(const fleet::v1::PayloadApart& apart, std::string_view from) const {
  for (const auto& [peer, lane] : lanes_) {
    if (peer.sends && peer.incarnation == Incarnation(apart.sender()) && lane.meeting == apart.meeting()) {
      return peer;
    }
  }
  return {Incarnation(apart.sender()), true, std::string(from)};
}

absl::Status NcclLink::Expect(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces,
                              Done& done) {
  const fleet::v1::PayloadApart& apart = chunk.apart();
  const std::string where =
      fmt::format("chunk of ticket {} at block {}", chunk.ticket_id(), chunk.first_block());
  if (!chunk.has_apart() || apart.meeting().size() != kMeetingBytes) {
    return absl::DataLossError(
        fmt::format("{}: its payload should come by the nccl link: do both workers have the "
                    "same --link?",
                    where));
  }
  if (HeaderCrc(chunk) != chunk.crc32c()) return absl::DataLossError(where + ": checksum of its header");
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  BATON_RETURN_IF_ERROR(Usable());
  const Peer peer = PeerOf(apart, from);
  Lane& lane = lanes_[peer];
  if (apart.epoch() < lane.epoch) {
    return absl::UnavailableError(where + ": the pair has been made again since it was sent");
  }
  BATON_RETURN_IF_ERROR(pairs_.Join(peer, apart.meeting(), now));
  if (lane.meeting != apart.meeting()) {
    Clear(peer, lane, "the peer made a new pair");
    lane.meeting = apart.meeting();
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
  const bool posted = post_([this, shared, status = std::move(status)] {
    if (!status.ok()) {
      shared->done(status);
      return;
    }
    Unpacked ended;
    {
      absl::MutexLock lock(&mutex_);
      unpacking_.emplace_back(payload_.Unpack(shared->staging.data, shared->bytes, shared->pieces), shared);
      ended = TakeUnpacked();  // of memory of the host, all of them
    }
    for (auto& [unpacked, how] : ended) unpacked->done(std::move(how));
  });
  if (!posted) untold_.push_back(shared);
}

NcclLink::Unpacked NcclLink::TakeUnpacked() {
  Unpacked ended;
  while (!unpacking_.empty()) {
    std::optional<absl::Status> status = payload_.Unpacked(unpacking_.front().first);
    if (!status.has_value()) break;
    std::shared_ptr<Transfer> transfer = std::move(unpacking_.front().second);
    unpacking_.pop_front();
    if (status->ok()) received_bytes_ += transfer->bytes;
    GiveBack(transfer->staging);
    ended.emplace_back(std::move(transfer), *std::move(status));
  }
  return ended;
}

void NcclLink::Clear(const Peer& peer, Lane& lane, const std::string& why) {
  for (Numbered* numbered : {&lane.under_way, &lane.waiting, &lane.strays}) {
    for (auto& [sequence, transfer] : *numbered) {
      const Staging::Run run = std::exchange(transfer.staging, {});
      if (run.data != nullptr && numbered == &lane.under_way && pairs_.holds(lane.meeting)) {
        held_.emplace(lane.meeting, run);
      } else if (run.data != nullptr && !peer.sends && !payload_.Packed(transfer.pack)) {
        packing_.emplace_back(transfer.pack, run);
      } else {
        GiveBack(run);
      }
      if (transfer.done != nullptr) {
        Tell(std::move(transfer), absl::UnavailableError("nccl link: " + why));
      }
    }
    numbered->clear();
  }
  lane.finished = 0;
  lane.asked = 0;
  if (!peer.sends) (void)post_([] {});  // for its metrics
}

void NcclLink::Flush(absl::Duration max) {
  absl::MutexLock lock(&mutex_);
  const auto sent = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !Sending(); };
  mutex_.AwaitWithTimeout(absl::Condition(&sent), max);
}

std::string NcclLink::fault() const {
  absl::MutexLock lock(&mutex_);
  return fault_;
}

NcclLink::Counts NcclLink::counts() const {
  absl::MutexLock lock(&mutex_);
  return {.open_pairs = pairs_.open(),
          .ending = pairs_.ending(),
          .quarantined = pairs_.quarantined(),
          .joined = pairs_.joined_total(),
          .failed = pairs_.failed_total(),
          .aborted = pairs_.aborted_total(),
          .sent_bytes = sent_bytes_,
          .received_bytes = received_bytes_,
          .dropped_bytes = dropped_bytes_,
          .ids = pairs_.ids_total(),
          .ids_met = pairs_.ids_met_total(),
          .calls = calls_.InProgress(),
          .fault = !fault_.empty(),
          .communicator_bytes = pairs_.memory_bytes(),
          .staging_bytes = staging_.bytes(),
          .staging_in_use = staging_.in_use()};
}

}  // namespace baton::transfer
