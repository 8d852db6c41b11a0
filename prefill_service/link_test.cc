#include "prefill_service/link_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/transfer/shipment.h"

namespace baton::prefill_service {

absl::Status ShipTest(const transfer::Ticket& ticket, engine::Engine& engine, transfer::LinkSender& link,
                      int64_t max_chunk_bytes, const std::function<void(v1::KvChunk)>& send) {
  const kv::KvLayout& layout = engine.store().layout();
  const int64_t most = std::max<int64_t>(1, kMaxTestBytes / layout.block_bytes());
  if (ticket.first_block != 0 || ticket.blocks() < 1 || ticket.blocks() > most) {
    return absl::InvalidArgumentError(
        fmt::format("ticket: covers blocks [{}, {}), a test takes 1 to {} from 0 on", ticket.first_block,
                    ticket.first_block + ticket.blocks(), most));
  }
  // A few blocks will do, each shipped several times.
  const int64_t own = std::clamp<int64_t>(engine.pool().available() / 4, 1, ticket.blocks());
  BATON_ASSIGN_OR_RETURN(const std::vector<BlockId> blocks, engine.pool().Allocate(own));
  std::vector<BlockId> table;
  for (int64_t i = 0; i < ticket.blocks(); ++i) table.push_back(blocks[static_cast<size_t>(i % own)]);
  transfer::Shipment shipment(ticket, link, engine.store(), max_chunk_bytes);
  absl::Status shipped = shipment.Ship(table, 0, ticket.blocks(), 0, layout.layers, send);
  engine.pool().Release(blocks);
  return shipped;
}

}  // namespace baton::prefill_service
