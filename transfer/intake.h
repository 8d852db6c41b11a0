// Intake: the blocks that a stream of KV fills, as a plain state machine: no gRPC, no clock. It owns a
// ticket, refuses every chunk that the ticket does not cover, counts layers per block, and commits blocks in
// order. Release is idempotent: no write begins after it, but a write that began before may still be in
// progress, and until writing() is false the Intake and its blocks stay where they are. Engine thread.
//
// clang-format off
//   kReserved ---Request---------------------> kRequested
//   kRequested --first chunk-----------------> kReceiving
//   kReceiving --last layer of the last block-> kCommitted
//   any ---------Release---------------------> kReleased
// clang-format on
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "engine/kv/store/kv_store.h"
#include "protocol/fleet/ticket.h"
#include "transfer/link.h"

namespace baton::transfer {

class Intake {
 public:
  enum class State { kReserved, kRequested, kReceiving, kCommitted, kReleased };

  // `blocks`: the sequence's block table; the ticket covers its tail from ticket.first_block on. `store` and
  // `link` outlive it.
  Intake(protocol::Ticket ticket, std::span<const BlockId> blocks, kv::KvStore& store, LinkReceiver& link);
  ~Intake();
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // The stream has been asked for, from the worker at this address.
  void Request(std::string from = {});

  // Takes one chunk, which lives until done(status) is called. That happens on this thread, when the bytes
  // are in place or refused:
  // clang-format off
  //   FAILED_PRECONDITION  a late write: another incarnation, ticket or generation, or no more chunks are expected
  //   INVALID_ARGUMENT     blocks or layers outside the ticket, or sent twice
  //   DATA_LOSS            wrong size or checksum
  // clang-format on
  // After an error the caller ends the stream; committed blocks stay good.
  void Accept(const fleet::v1::KvChunk& chunk, absl::AnyInvocable<void(absl::Status)> done);

  // No further write begins.
  void Release();
  // A write has begun and not ended: the link may touch the blocks.
  bool writing() const { return writes_ > 0; }

  State state() const { return state_; }
  const protocol::Ticket& ticket() const { return ticket_; }
  // Blocks of the prompt, counted from its start, whose KV is complete without a gap.
  int64_t committed_blocks() const { return ticket_.first_block + committed_; }
  int64_t received_bytes() const { return received_bytes_; }
  int64_t received_blocks() const { return committed_; }

 private:
  absl::Status Check(const fleet::v1::KvChunk& chunk) const;
  void Commit(const fleet::v1::KvChunk& chunk);

  protocol::Ticket ticket_;
  std::vector<BlockId> blocks_;  // of the ticket, in order
  std::string from_;
  kv::KvStore* store_;
  LinkReceiver* link_;
  State state_ = State::kReserved;
  // [block][layer]: a write has begun. A second one is refused even while the first is in progress.
  std::vector<uint8_t> begun_;
  std::vector<int> layers_received_;
  int writes_ = 0;
  int64_t committed_ = 0;
  int64_t received_bytes_ = 0;
};

}  // namespace baton::transfer
