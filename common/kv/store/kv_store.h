// KvStore: the bytes of every block of one worker's pool, one mapping, zero at first and resident page by
// page as it is written. It knows no hashes, no owners and no references (see kv/index/block_pool.h). Owned
// by the engine; engine thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/kv/store/kv_layout.h"

namespace baton::kv {

class KvStore {
 public:
  // How many blocks `bytes` of memory hold; zero if not even one.
  static int64_t BlocksFor(const KvLayout& layout, int64_t bytes) { return bytes / layout.block_bytes(); }

  // Room for `blocks` blocks, at least one. RESOURCE_EXHAUSTED, with the sum in bytes, if the memory can't be
  // had.
  static absl::StatusOr<KvStore> Create(const KvLayout& layout, int64_t blocks);

  KvStore(KvStore&&) noexcept = default;
  KvStore& operator=(KvStore&&) noexcept = default;

  const KvLayout& layout() const { return layout_; }
  int64_t blocks() const { return blocks_; }
  std::byte* block(BlockId id) { return memory_.get() + id.value() * layout_.block_bytes(); }
  const std::byte* block(BlockId id) const { return memory_.get() + id.value() * layout_.block_bytes(); }
  // Layers [first, first + count) of a block.
  std::span<std::byte> layers(BlockId id, int first, int count) {
    return {block(id) + first * layout_.layer_bytes(), static_cast<size_t>(count * layout_.layer_bytes())};
  }

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  using Mapping = std::unique_ptr<std::byte[], Unmap>;
  KvStore(const KvLayout& layout, int64_t blocks, Mapping memory)
      : layout_(layout), blocks_(blocks), memory_(std::move(memory)) {}

  KvLayout layout_;
  int64_t blocks_;
  Mapping memory_;
};

}  // namespace baton::kv
