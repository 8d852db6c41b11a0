#include "transfer/shipment.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "common/base/status.h"

namespace baton::transfer {

Shipment::Shipment(protocol::Ticket ticket, LinkSender& link, kv::KvStore& store, int64_t max_chunk_bytes)
    : ticket_(std::move(ticket)), link_(&link), store_(&store), max_chunk_bytes_(max_chunk_bytes) {}

int64_t Shipment::RunOf(int first_layer, int layers) const {
  return std::max<int64_t>(1, max_chunk_bytes_ / store_->layout().layers_bytes(first_layer, layers));
}

int64_t Shipment::Footprint(int64_t blocks, int layers) const {
  const kv::KvLayout& layout = store_->layout();
  int64_t bytes = 0;
  for (int layer = 0; layer < layout.layers; layer += layers) {
    const int count = std::min(layers, layout.layers - layer);
    const int64_t run = RunOf(layer, count), block_bytes = layout.layers_bytes(layer, count);
    if (blocks >= run) bytes += blocks / run * link_->Footprint(run * block_bytes);
    if (blocks % run > 0) bytes += link_->Footprint(blocks % run * block_bytes);
  }
  return bytes;
}

int64_t Shipment::Reserve(int64_t first_block, int64_t blocks, int layers) {
  const int64_t begin = std::max(first_block, ticket_.first_block);
  const int64_t covered = std::min(first_block + blocks, ticket_.first_block + ticket_.blocks()) - begin;
  if (covered <= 0) return blocks;
  const int64_t bytes = link_->Reserve(ticket_, Footprint(1, layers), Footprint(covered, layers));
  int64_t fit = 0, too_many = covered + 1;
  while (too_many - fit > 1) {
    const int64_t middle = (fit + too_many) / 2;
    (Footprint(middle, layers) <= bytes ? fit : too_many) = middle;
  }
  return fit == covered ? blocks : begin - first_block + fit;
}

absl::Status Shipment::Ship(std::span<const BlockId> table, int64_t first_block, int64_t blocks,
                            int first_layer, int layers,
                            const std::function<void(fleet::v1::KvChunk)>& send) {
  const int64_t begin = std::max(first_block, ticket_.first_block);
  const int64_t end = std::min(first_block + blocks, ticket_.first_block + ticket_.blocks());
  const int64_t run = RunOf(first_layer, layers);
  std::vector<std::span<std::byte>> pieces;
  std::vector<std::span<const std::byte>> read_only;
  for (int64_t block = begin; block < end; block += run) {
    const int64_t count = std::min(run, end - block);
    const auto shipped = std::make_shared<fleet::v1::KvChunk>();  // the link may complete it later
    fleet::v1::KvChunk& chunk = *shipped;
    chunk.set_incarnation(ticket_.incarnation.value());
    chunk.set_ticket_id(ticket_.id.value());
    chunk.set_first_block(static_cast<uint32_t>(block));
    chunk.set_first_layer(first_layer);
    chunk.set_layers(layers);
    pieces.clear();
    for (int64_t index = block; index < block + count; ++index) {
      chunk.add_generations(ticket_.generations[index - ticket_.first_block].value());
      store_->AppendPieces(table[index], first_layer, layers, pieces);
    }
    read_only.assign(pieces.begin(), pieces.end());
    BATON_RETURN_IF_ERROR(link_->Ship(read_only, chunk));
    shipped_bytes_ += count * store_->layout().layers_bytes(first_layer, layers);
    link_->WhenReady([send, shipped] { send(std::move(*shipped)); });
  }
  return absl::OkStatus();
}

}  // namespace baton::transfer
