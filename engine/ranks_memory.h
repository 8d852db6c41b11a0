// RanksMemory: the memories of a tensor-parallel group as one, for code that copies KV of the joint store:
// each copy goes through the memory of the rank whose store the bytes lie in, and is ordered by that rank's
// kernels and fences. Engine thread, but for what device::Memory
// and device::Outbound give to others.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/memory.h"
#include "engine/kv/store/kv_store.h"

namespace baton::engine {

class RanksMemory final : public device::Memory {
 public:
  // The stores outlive it and don't move.
  explicit RanksMemory(std::vector<kv::KvStore*> stores) : stores_(std::move(stores)) {}

  std::string name() const override { return "memory of all ranks"; }
  bool host() const override { return stores_.front()->memory().host(); }
  // Nothing is allocated of all of them.
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override;
  absl::Status Upload(const void* host, std::byte* here, int64_t bytes) override;
  absl::Status Download(const std::byte* here, void* host, int64_t bytes) override;
  // Fences every rank's memory.
  void Fence() override;
  // Each rank marks its own work, all ranks the same: a mark's number means the same to all. Announced is
  // what rank 0 has announced, whose thread this is.
  int64_t announced() const override { return stores_.front()->memory().announced(); }
  // Each rank's pieces leave and arrive by its own memory.
  absl::StatusOr<std::unique_ptr<device::Outbound>> MakeOutbound(int64_t bytes) override;
  absl::Status UploadPieces(const std::byte* host, std::span<const Piece> pieces) override;

 private:
  void Free(std::byte*, int64_t) override {}
  size_t RankOf(const std::byte* here) const;
  device::Memory& MemoryOf(const std::byte* here) const { return stores_[RankOf(here)]->memory(); }
  // The pieces of each rank, in their order.
  template <typename AnyPiece>
  std::vector<std::vector<AnyPiece>> ByRank(std::span<const AnyPiece> pieces) const;
  class RanksOutbound;

  std::vector<kv::KvStore*> stores_;
};

}  // namespace baton::engine
