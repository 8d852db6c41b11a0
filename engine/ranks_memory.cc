#include "engine/ranks_memory.h"

#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"

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

template <typename AnyPiece>
std::vector<std::vector<AnyPiece>> RanksMemory::ByRank(std::span<const AnyPiece> pieces) const {
  std::vector<std::vector<AnyPiece>> own(stores_.size());
  for (const AnyPiece& piece : pieces) own[RankOf(piece.here)].push_back(piece);
  return own;
}

// Each rank's own has a part of every payload, though it may be empty, so that they number alike.
class RanksMemory::RanksOutbound final : public device::Outbound {
 public:
  RanksOutbound(const RanksMemory& memory, std::vector<std::unique_ptr<device::Outbound>> ranks)
      : memory_(memory), ranks_(std::move(ranks)) {}

  uint64_t Gather(int64_t mark, std::span<const Piece> pieces) override {
    const std::vector<std::vector<Piece>> own = memory_.ByRank(pieces);
    uint64_t number = 0;
    for (size_t rank = 0; rank < own.size(); ++rank) number = ranks_[rank]->Gather(mark, own[rank]);
    return number;
  }
  void Take(uint64_t number, std::byte* payload) override {
    for (const auto& rank : ranks_) rank->Take(number, payload);
  }

 private:
  const RanksMemory& memory_;
  const std::vector<std::unique_ptr<device::Outbound>> ranks_;
};

absl::StatusOr<std::unique_ptr<device::Outbound>> RanksMemory::MakeOutbound(int64_t bytes) {
  std::vector<std::unique_ptr<device::Outbound>> ranks;
  for (kv::KvStore* store : stores_) {
    BATON_ASSIGN_OR_RETURN(auto own, store->memory().MakeOutbound(bytes));
    ranks.push_back(std::move(own));
  }
  return std::make_unique<RanksOutbound>(*this, std::move(ranks));
}

absl::Status RanksMemory::UploadPieces(const std::byte* host, std::span<const Piece> pieces) {
  const std::vector<std::vector<Piece>> own = ByRank(pieces);
  for (size_t rank = 0; rank < own.size(); ++rank) {
    BATON_RETURN_IF_ERROR(stores_[rank]->memory().UploadPieces(host, own[rank]));
  }
  return absl::OkStatus();
}

void RanksMemory::Fence() {
  for (kv::KvStore* store : stores_) store->memory().Fence();
}

size_t RanksMemory::RankOf(const std::byte* here) const {
  for (size_t rank = 0; rank < stores_.size(); ++rank) {
    const kv::KvStore& store = *stores_[rank];
    const std::byte* begin = store.block(BlockId(0));
    if (here >= begin && here < begin + store.blocks() * store.layout().block_bytes()) return rank;
  }
  BATON_CHECK(false) << " an address of no rank's store";
  return 0;
}

}  // namespace baton::engine
