#include "transfer/ucx/ucx_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"

namespace baton::transfer {
namespace {

// Bound on an address or a key: UCX's have some hundred bytes per network card.
constexpr size_t kMaxAddressBytes = 64 << 10;

int64_t BytesOf(auto pieces) {
  int64_t bytes = 0;
  for (const auto piece : pieces) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

// Ties a message to its payload: what is said of it, and to whom.
uint32_t ReadCrc(const fleet::v1::KvChunk& chunk) {
  const fleet::v1::PayloadToRead& read = chunk.read();
  uint32_t crc =
      Crc32c(fmt::format("{} {} {} {} {} {} {} {}", chunk.incarnation(), chunk.ticket_id(), read.sender(),
                         read.name(), read.address(), read.bytes(), read.slot(), read.complete()));
  for (const std::string* part : {&read.worker(), &read.payload_key(), &read.slot_key()}) {
    crc = Crc32c(*part, crc);
  }
  return crc;
}

std::span<HeldPayloads::Slot> ShownSlots(const device::Memory::Buffer& slots, size_t count) {
  auto* const first = reinterpret_cast<HeldPayloads::Slot*>(slots.get());
  for (size_t i = 0; i < count; ++i) new (&first[i]) HeldPayloads::Slot(0);
  return {first, count};
}

std::span<uint64_t> LandingSlots(const device::Memory::Buffer& slots, size_t count) {
  return {reinterpret_cast<uint64_t*>(slots.get()) + count, count};
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxLink>> UcxLink::Create(std::unique_ptr<Fabric> fabric, Payload& payload,
                                                         const Clock& clock, Incarnation self, Post post,
                                                         const UcxLinkOptions& options) {
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer slab, payload.Stage(options.staging_bytes));
  const auto slot_bytes = static_cast<int64_t>(2 * options.max_payloads * sizeof(uint64_t));
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer slots, device::HostMemory().Allocate(slot_bytes));
  auto registered = std::move(fabric);  // ends before the memory that it has registered
  Keys keys;
  BATON_ASSIGN_OR_RETURN(keys.payloads,
                         registered->Register(Fabric::Region::kPayloads, slab.get(), options.staging_bytes));
  BATON_ASSIGN_OR_RETURN(keys.slots, registered->Register(Fabric::Region::kSlots, slots.get(), slot_bytes));
  return std::unique_ptr<UcxLink>(new UcxLink(std::move(registered), payload, clock, self, std::move(post),
                                              options, std::move(slab), std::move(slots), std::move(keys)));
}

UcxLink::UcxLink(std::unique_ptr<Fabric> fabric, Payload& payload, const Clock& clock, Incarnation self,
                 Post post, const UcxLinkOptions& options, device::Memory::Buffer slab,
                 device::Memory::Buffer slots, Keys keys)
    : payload_(payload),
      clock_(clock),
      self_(self),
      post_(std::move(post)),
      options_(options),
      keys_(std::move(keys)),
      slots_(std::move(slots)),
      staging_(std::move(slab), options.staging_bytes),
      held_(ShownSlots(slots_, options.max_payloads)),
      fabric_(std::move(fabric)),
      reads_(*fabric_,
             {.take =
                  [this](int64_t bytes) {
                    absl::MutexLock lock(&mutex_);
                    return staging_.Take(bytes);
                  },
              .give_back =
                  [this](const Staging::Run& run) {
                    absl::MutexLock lock(&mutex_);
                    GiveBack(run);
                  },
              .bytes = options.staging_bytes,
              .slots = LandingSlots(slots_, options.max_payloads)},
             options.reads),
      thread_([this] { Work(); }) {}

std::string UcxLink::Pairing(std::string_view version, std::string_view place) {
  return fmt::format("ucx/{}/{}", version, place);
}

void UcxLink::GiveBack(const Staging::Run& run) {
  const bool before = Congested();
  staging_.GiveBack(run);
  if (before && !Congested()) (void)post_([] {});
}

bool UcxLink::congested() const {
  absl::MutexLock lock(&mutex_);
  return Congested();
}

absl::Status UcxLink::Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) {
  const int64_t bytes = BytesOf(pieces);
  const int64_t with_trailer = bytes + payload_.TrailerBytes(bytes);
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the ucx link is closed");
  const std::optional<Staging::Run> run = staging_.Take(with_trailer);
  if (!run.has_value()) {
    return absl::UnavailableError(fmt::format(
        "the ucx link has {} bytes of staging memory, {} in use, and {} more are wanted: the peer is slow",
        staging_.bytes(), staging_.in_use(), with_trailer));
  }
  const uint64_t pack = payload_.Pack(pieces, run->data);
  const bool complete = payload_.Packed(pack);
  const HeldPayloads::Payload held = {.run = *run,
                                      .bytes = bytes,
                                      .pack = pack,
                                      .receiver = Incarnation(chunk.incarnation()),
                                      .ticket = TicketId(chunk.ticket_id()),
                                      .since = clock_.Now()};
  const std::optional<HeldPayloads::Place> place = held_.Hold(held, complete);
  if (!place.has_value()) {
    GiveUp(held);
    return absl::UnavailableError(
        fmt::format("the ucx link holds {} payloads, and no more: the peer is slow", held_.size()));
  }
  fleet::v1::PayloadToRead& read = *chunk.mutable_read();
  read.set_sender(self_.value());
  read.set_name(place->name);
  read.set_worker(fabric_->address());
  read.set_payload_key(keys_.payloads);
  read.set_slot_key(keys_.slots);
  read.set_address(reinterpret_cast<uint64_t>(run->data));
  read.set_bytes(static_cast<uint64_t>(bytes));
  read.set_slot(reinterpret_cast<uint64_t>(place->slot));
  read.set_complete(complete);
  chunk.set_crc32c(ReadCrc(chunk));
  if (!complete) fabric_->Wake();  // the thread looks after the pack
  return absl::OkStatus();
}

void UcxLink::Forget(Incarnation receiver, TicketId ticket) {
  absl::MutexLock lock(&mutex_);
  for (const HeldPayloads::Payload& payload : held_.TakeOf(receiver, ticket)) GiveUp(payload);
}

void UcxLink::GiveUp(const HeldPayloads::Payload& payload) {
  ++counts_.given_up;
  if (payload_.Packed(payload.pack)) {
    GiveBack(payload.run);
  } else {
    packing_.emplace_back(payload.pack, payload.run);
    std::ranges::sort(packing_, {}, [](const auto& entry) { return entry.first; });
  }
}

void UcxLink::Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) {
  if (absl::Status expected = Expect(chunk, from, pieces, done); !expected.ok()) done(std::move(expected));
}

absl::Status UcxLink::Expect(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces,
                             Done& done) {
  const fleet::v1::PayloadToRead& read = chunk.read();
  const std::string where =
      fmt::format("chunk of ticket {} at block {}", chunk.ticket_id(), chunk.first_block());
  if (!chunk.has_read() || read.name() % 2 == 0 ||
      std::max({read.worker().size(), read.payload_key().size(), read.slot_key().size()}) >
          kMaxAddressBytes) {
    return absl::DataLossError(fmt::format(
        "{}: its payload should be read over the ucx link: do both workers have the same --link?", where));
  }
  if (ReadCrc(chunk) != chunk.crc32c()) return absl::DataLossError(where + ": checksum of its header");
  const int64_t bytes = BytesOf(pieces);
  if (read.bytes() != static_cast<uint64_t>(bytes)) {
    return absl::DataLossError(
        fmt::format("{} has {} bytes where its blocks take {}", where, read.bytes(), bytes));
  }
  const int64_t with_trailer = bytes + payload_.TrailerBytes(bytes);
  if (Staging::Size(with_trailer) > options_.staging_bytes) {
    return absl::UnavailableError(
        fmt::format("{} has {} bytes, more than the ucx link's staging memory", where, bytes));
  }
  Reads::Request request = {.payload = read,
                            .from = std::string(from),
                            .bytes = with_trailer,
                            .pieces = {pieces.begin(), pieces.end()},
                            .done = {}};
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::UnavailableError("the ucx link is closed");
    request.done = std::move(done);
    asked_.push_back(std::move(request));
  }
  fabric_->Wake();
  return absl::OkStatus();
}

void UcxLink::Suspect(std::string_view from) {
  {
    absl::MutexLock lock(&mutex_);
    suspects_.emplace_back(from);
  }
  fabric_->Wake();
}

void UcxLink::Tell(Reads::Ended ended) {
  const auto landed = std::make_shared<Landed>(Landed{std::move(ended.request), ended.run});
  const bool posted = post_([this, landed, status = std::move(ended.status)] {
    if (!status.ok()) {
      landed->request.done(status);
      return;
    }
    Unpacked unpacked;
    {
      absl::MutexLock lock(&mutex_);
      const int64_t bytes = BytesOf(std::span(landed->request.pieces));
      unpacking_.emplace_back(payload_.Unpack(landed->run.data, bytes, landed->request.pieces), landed);
      unpacked = TakeUnpacked();  // of memory of the host, all of them
    }
    fabric_->Wake();  // there is memory for further reads
    for (auto& [own, how] : unpacked) own->request.done(std::move(how));
  });
  if (!posted) untold_.push_back(landed);
}

UcxLink::Unpacked UcxLink::TakeUnpacked() {
  Unpacked ended;
  while (!unpacking_.empty()) {
    std::optional<absl::Status> status = payload_.Unpacked(unpacking_.front().first);
    if (!status.has_value()) break;
    std::shared_ptr<Landed> landed = std::move(unpacking_.front().second);
    unpacking_.pop_front();
    if (status->ok()) counts_.received_bytes += BytesOf(std::span(landed->request.pieces));
    GiveBack(landed->run);
    ended.emplace_back(std::move(landed), *std::move(status));
  }
  return ended;
}

void UcxLink::Flush(absl::Duration max) {
  absl::MutexLock lock(&mutex_);
  const auto sent = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || held_.size() == 0; };
  mutex_.AwaitWithTimeout(absl::Condition(&sent), max);
}

void UcxLink::Close() {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  fabric_->Wake();
  thread_.join();
  std::vector<std::shared_ptr<Landed>> untold;
  std::vector<Reads::Request> asked;
  {
    absl::MutexLock lock(&mutex_);
    untold.swap(untold_);
    asked.swap(asked_);
    for (auto& [number, landed] : unpacking_) untold.push_back(std::move(landed));
    unpacking_.clear();
  }
  const absl::Status closed = absl::CancelledError("the ucx link is closed");
  for (const auto& landed : untold) landed->request.done(closed);
  for (Reads::Request& request : asked) request.done(closed);
}

UcxLink::Counts UcxLink::counts() const {
  absl::MutexLock lock(&mutex_);
  Counts counts = counts_;
  counts.held = held_.size();
  counts.staging_bytes = staging_.bytes();
  counts.staging_in_use = staging_.in_use();
  return counts;
}

}  // namespace baton::transfer
