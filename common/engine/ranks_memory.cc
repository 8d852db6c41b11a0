#include "common/engine/ranks_memory.h"

#include <vector>

#include "common/base/check.h"

namespace baton::engine {

absl::StatusOr<device::Memory::Buffer> RanksMemory::Allocate(int64_t) {
  return absl::UnimplementedError("memory is allocated of one rank");
}

absl::Status RanksMemory::Upload(const void* host, std::byte* here, int64_t bytes) {
  return MemoryOf(here).Upload(host, here, bytes);
}

absl::Status RanksMemory::Download(const std::byte* here, void* host, int64_t bytes) {
  return MemoryOf(here).Download(here, host, bytes);
}

absl::Status RanksMemory::DownloadMarked(int64_t mark, std::span<const Piece> pieces) {
  for (kv::KvStore* store : stores_) {
    std::vector<Piece> own;
    for (const Piece& piece : pieces) {
      if (&MemoryOf(piece.here) == &store->memory()) own.push_back(piece);
    }
    if (own.empty()) continue;
    if (absl::Status copied = store->memory().DownloadMarked(mark, own); !copied.ok()) return copied;
  }
  return absl::OkStatus();
}

void RanksMemory::Fence() {
  for (kv::KvStore* store : stores_) store->memory().Fence();
}

device::Memory& RanksMemory::MemoryOf(const std::byte* here) const {
  for (kv::KvStore* store : stores_) {
    const std::byte* begin = store->block(BlockId(0));
    if (here >= begin && here < begin + store->blocks() * store->layout().block_bytes())
      return store->memory();
  }
  BATON_CHECK(false) << " an address of no rank's store";
  return stores_.front()->memory();
}

}  // namespace baton::engine
