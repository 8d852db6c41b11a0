// Shipment: the prefill worker's half of a hand-off's bytes: cuts runs of blocks into chunks that carry the
// ticket and fit in a message, and counts what left. It ships nothing that the ticket does not cover. Engine
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "engine/kv/store/kv_store.h"
#include "protocol/fleet/ticket.h"
#include "transfer/link.h"

namespace baton::transfer {

class Shipment {
 public:
  // `link` and `store` outlive it. max_chunk_bytes bounds a chunk's payload (at least one layer of one block
  // leaves in each).
  Shipment(protocol::Ticket ticket, LinkSender& link, kv::KvStore& store, int64_t max_chunk_bytes);

  // Sets memory of the link's aside for blocks [first_block, first_block + blocks), which Ship is called for
  // next, `layers` layers at a time. Returns for how many of them, from the first on, there is enough; if not
  // for all, the engine's loop is woken when there may be more.
  int64_t Reserve(int64_t first_block, int64_t blocks, int layers);
  // Gives back what was not needed of it.
  void Unreserve() { link_->Unreserve(ticket_); }

  // Ships layers [first_layer, first_layer + layers) of the prompt's blocks [first_block, first_block +
  // blocks), as far as the ticket covers them. `table` is the sequence's block table. send() takes each chunk
  // in turn, when the link says so: at once, or later on another thread.
  absl::Status Ship(std::span<const BlockId> table, int64_t first_block, int64_t blocks, int first_layer,
                    int layers, const std::function<void(fleet::v1::KvChunk)>& send);

  const protocol::Ticket& ticket() const { return ticket_; }
  int64_t shipped_bytes() const { return shipped_bytes_; }

 private:
  // Blocks of which so many layers fit in a chunk.
  int64_t RunOf(int first_layer, int layers) const;
  // Bytes of the link's memory that so many blocks take.
  int64_t Footprint(int64_t blocks, int layers) const;

  protocol::Ticket ticket_;
  LinkSender* link_;
  kv::KvStore* store_;
  int64_t max_chunk_bytes_;
  int64_t shipped_bytes_ = 0;
};

}  // namespace baton::transfer
