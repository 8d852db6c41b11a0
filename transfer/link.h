// Link: what carries the bytes of KV between two workers. The control stream (prefill.proto) always carries
// the chunk messages; a link decides how the payload of one gets across: inline (host), by a path of its own
// (nccl), or by the receiver's reading the sender's memory (ucx). One level deep; every implementation passes
// the contract suite in tests/contract/link/link_contract_test.cc.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/fleet/v1/handoff.pb.h"
#include "protocol/fleet/ticket.h"

namespace baton::transfer {

// Pieces of memory that make up one payload, in order.
using ConstPieces = std::span<const std::span<const std::byte>>;
using Pieces = std::span<const std::span<std::byte>>;

// The prefill worker's end. Engine thread.
class LinkSender {
 public:
  virtual ~LinkSender() = default;
  // "host", "nccl", "ucx": the metric label.
  virtual std::string_view name() const = 0;
  // The name of what both ends need to be equal in to exchange bytes: in the fingerprint.
  virtual std::string pairing() const { return std::string(name()); }
  // Puts the payload on its way and completes `chunk` (data or a reference to it, checksum), at the latest
  // before what WhenReady is given next runs: until then the chunk stays and is nobody else's. The pieces are
  // valid during the call only. UNAVAILABLE: the link is down, the hand-off ends.
  virtual absl::Status Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) = 0;
  // Runs `then`, which sends the chunk of the last Ship or what follows it on its stream, once the payloads
  // of all chunks shipped so far can leave: a receiver that hears of a payload earlier only waits for it,
  // with resources of its own. In the order of the calls; at once, or later on a thread of the link's. `then`
  // does not wait and calls nothing of the link's.
  virtual void WhenReady(absl::AnyInvocable<void()> then) { then(); }
  // So many bytes are on their way that nothing more should be shipped now. The engine's loop is woken when
  // that changes.
  virtual bool congested() const { return false; }
  // The stream of this ticket broke: nobody reads what was shipped for it.
  virtual void Forget(Incarnation /*receiver*/, TicketId /*ticket*/) {}
  // Bytes of the link's own memory that a payload takes until it has left.
  virtual int64_t Footprint(int64_t bytes) const { return bytes; }
  // Sets memory of the link's aside for the next chunks of this ticket, in place of what was set aside for it
  // before: as much of `most` bytes as can be had at once and is its receiver's share, or 0 if that is less
  // than `least`; then the engine's loop is woken when memory comes back. Ship takes from it, by footprints,
  // and does not fail for lack of memory as long as it lasts.
  virtual int64_t Reserve(const protocol::Ticket& /*ticket*/, int64_t /*least*/, int64_t most) {
    return most;
  }
  // Gives back what is left of it.
  virtual void Unreserve(const protocol::Ticket& /*ticket*/) {}
  // A peer asks for what it needs to come to a meeting that a chunk named (nccl). `answer` comes once, on the
  // engine thread.
  using Answer = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;
  virtual void Meet(const std::string& /*meeting*/, Answer answer) {
    answer(absl::FailedPreconditionError("the link of this worker has no meetings"));
  }
};

// The decode worker's end. Engine thread.
class LinkReceiver {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  virtual ~LinkReceiver() = default;
  virtual std::string_view name() const = 0;
  virtual std::string pairing() const { return std::string(name()); }
  // Brings the payload of `chunk` into the pieces, verifies the checksum, then calls `done`, on the engine
  // thread, before or after it returns. `from`: the address of the worker whose stream brought the chunk.
  // `done` is always called, at the latest when the peer is found dead. Until then the link may write: the
  // chunk, the pieces and the receiver of `done` stay. DATA_LOSS: wrong size or checksum; what was written
  // must not be used.
  virtual void Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) = 0;
  // A stream from this worker broke: it may be dead.
  virtual void Suspect(std::string_view /*from*/) {}
};

}  // namespace baton::transfer
