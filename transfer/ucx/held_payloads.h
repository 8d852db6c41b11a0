// HeldPayloads: what a sender holds for its receivers to read, by name, and the slots in which they see
// whether it still does. A slot is 8 bytes of registered memory: the payload's name as long as it is held
// and complete, the name less one until it is complete, and something else afterwards. A receiver looks at
// the slot after it has read the payload: if the name is there, no byte of what it read was another
// payload's. Bookkeeping only; whoever owns it has the lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "transfer/nccl/staging.h"

namespace baton::transfer {

class HeldPayloads {
 public:
  // The word in a slot: peers read it with their own cards, in one piece.
  using Slot = std::atomic<uint64_t>;
  static_assert(sizeof(Slot) == sizeof(uint64_t) && Slot::is_always_lock_free);

  struct Payload {
    Staging::Run run;
    int64_t bytes = 0;  // without its checksums
    uint64_t pack = 0;  // its number
    Incarnation receiver;
    TicketId ticket;
    absl::Time since;
  };

  // All of `slots`, which outlive it.
  explicit HeldPayloads(std::span<Slot> slots);

  struct Place {
    uint64_t name;
    const Slot* slot;
  };
  // Nothing if no slot is free.
  std::optional<Place> Hold(const Payload& payload, bool complete);
  // Packs up to this number have ended.
  void Completed(uint64_t pack);
  // The first pack that has not been seen to end.
  std::optional<uint64_t> incomplete() const;

  // A receiver has read it. Nothing if there is no payload of this name.
  std::optional<Payload> Read(uint64_t name, absl::Time now);
  // Nobody will read these any more: those of a ticket, and of receivers that have read nothing for
  // `patience`.
  std::vector<Payload> TakeOf(Incarnation receiver, TicketId ticket);
  std::vector<Payload> TakeStale(absl::Time now, absl::Duration patience);

  size_t size() const { return held_.size(); }

 private:
  struct Held {
    Payload payload;
    size_t slot = 0;
    bool complete = false;
  };
  using Map = std::map<uint64_t, Held>;
  Payload Take(Map::iterator held);

  const std::span<Slot> slots_;
  std::vector<size_t> free_;
  Map held_;
  std::map<uint64_t, uint64_t> incomplete_;   // names by pack
  std::map<uint64_t, absl::Time> last_read_;  // by receiver
};

}  // namespace baton::transfer
