#include "engine/kv/store/kv_store.h"

#include <fmt/format.h>

#include "common/base/check.h"

namespace baton::kv {

KvStore::KvStore(const KvLayout& layout, int64_t blocks, device::Memory& memory, device::Memory::Buffer bytes)
    : layout_(layout), blocks_(blocks), memory_(&memory), bytes_(std::move(bytes)) {
  for (int l = 0; l <= layout.layers; ++l) layers_.push_back(layout.layer(l));
}

absl::StatusOr<KvStore> KvStore::Create(const KvLayout& layout, int64_t blocks, device::Memory& memory) {
  if (layout.block_bytes() <= 0 || blocks <= 0) {
    return absl::InvalidArgumentError(
        fmt::format("a KV store needs at least one block of at least one byte, not {} of {}", blocks,
                    layout.block_bytes()));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, layout.block_bytes(), &bytes)) {
    return absl::ResourceExhaustedError(fmt::format(
        "no memory for {} KV blocks of {} bytes: the sum overflows", blocks, layout.block_bytes()));
  }
  absl::StatusOr<device::Memory::Buffer> buffer = memory.Allocate(bytes);
  if (!buffer.ok()) {
    return absl::Status(
        buffer.status().code(),
        fmt::format("{}: no room for {} KV blocks of {} bytes, {} bytes in all: {}", memory.name(), blocks,
                    layout.block_bytes(), bytes, std::string(buffer.status().message())));
  }
  return KvStore(layout, blocks, memory, *std::move(buffer));
}

KvStore KvStore::Joint(std::vector<KvStore*> shards, device::Memory& memory) {
  BATON_CHECK(!shards.empty());
  KvLayout layout = shards.front()->layout();
  const int64_t blocks = shards.front()->blocks();
  for (const KvStore* shard : shards) {
    BATON_CHECK(shard->layout() == layout && shard->blocks() == blocks && shard->shards_.empty());
  }
  layout.kv_heads *= static_cast<int>(shards.size());
  KvStore joint(layout, blocks, memory, nullptr);
  joint.shards_ = std::move(shards);
  return joint;
}

void KvStore::AppendPieces(BlockId id, int first, int count, std::vector<std::span<std::byte>>& pieces) {
  if (shards_.empty()) {
    pieces.push_back(layers(id, first, count));
    return;
  }
  for (int layer = first; layer < first + count; ++layer) {
    const auto keys = static_cast<size_t>(shards_.front()->layer(layer).key_bytes());
    for (KvStore* shard : shards_) pieces.push_back(shard->layers(id, layer, 1).first(keys));
    for (KvStore* shard : shards_) pieces.push_back(shard->layers(id, layer, 1).subspan(keys));
  }
}

}  // namespace baton::kv
