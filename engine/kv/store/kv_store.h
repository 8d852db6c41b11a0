// KvStore: the bytes of every block of one worker's pool, in the memory that the kernels work in, zero at
// first. It knows no hashes, no owners and no references (see kv/index/block_pool.h). Owned by the engine;
// engine thread only.
//
// Under tensor parallelism each rank has a store of its own KV heads, and a joint store over all of them
// shows their blocks to the links: piece by piece, in the very order of an undivided block, so that workers
// of different rank counts understand each other's bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "engine/device/memory.h"
#include "protocol/kv_layout.h"

namespace baton::kv {

class KvStore {
 public:
  // How many blocks `bytes` of memory hold; zero if not even one.
  static int64_t BlocksFor(const KvLayout& layout, int64_t bytes) { return bytes / layout.block_bytes(); }

  // Room for `blocks` blocks, at least one. RESOURCE_EXHAUSTED, with the sum in bytes, if the memory can't be
  // had.
  static absl::StatusOr<KvStore> Create(const KvLayout& layout, int64_t blocks,
                                        device::Memory& memory = device::HostMemory());

  // The joint store: shard i holds the KV heads after those of shard i - 1, in equal shares. The shards
  // outlive it; `memory` copies from and to all of them.
  static KvStore Joint(std::vector<KvStore*> shards, device::Memory& memory);

  KvStore(KvStore&&) noexcept = default;
  KvStore& operator=(KvStore&&) noexcept = default;

  const KvLayout& layout() const { return layout_; }
  // Where a layer lies in each block.
  const KvLayer& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  int64_t blocks() const { return blocks_; }
  device::Memory& memory() const { return *memory_; }

  // Appends layers [first, first + count) of a block, in the order of its layout.
  void AppendPieces(BlockId id, int first, int count, std::vector<std::span<std::byte>>& pieces);

  // Not of a joint store.
  std::byte* block(BlockId id) { return bytes_.get() + id.value() * layers_.back().offset; }
  const std::byte* block(BlockId id) const { return bytes_.get() + id.value() * layers_.back().offset; }
  // Layers [first, first + count) of a block. Not of a joint store.
  std::span<std::byte> layers(BlockId id, int first, int count) {
    const int64_t offset = layers_[static_cast<size_t>(first)].offset;
    return {block(id) + offset,
            static_cast<size_t>(layers_[static_cast<size_t>(first + count)].offset - offset)};
  }

 private:
  KvStore(const KvLayout& layout, int64_t blocks, device::Memory& memory, device::Memory::Buffer bytes);

  KvLayout layout_;
  std::vector<KvLayer> layers_;  // and one more, where the next block's first would be
  int64_t blocks_;
  device::Memory* memory_;
  device::Memory::Buffer bytes_;  // null in a joint store
  std::vector<KvStore*> shards_;  // of a joint store
};

}  // namespace baton::kv
