// FarMemory: the host's memory, which says that the host may not look into it. What runs over it is treated
// as a GPU: vectors are placed, logits downloaded. Counts the fences.
#pragma once

#include <string>

#include "common/device/memory.h"

namespace baton::testing {

class FarMemory final : public device::Memory {
 public:
  std::string name() const override { return "far memory"; }
  bool host() const override { return false; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override { return device::HostMemory().Allocate(bytes); }
  absl::Status Upload(const void* host, std::byte* here, int64_t bytes) override {
    return device::HostMemory().Upload(host, here, bytes);
  }
  absl::Status Download(const std::byte* here, void* host, int64_t bytes) override {
    return device::HostMemory().Download(here, host, bytes);
  }
  absl::Status DownloadMarked(int64_t mark, std::span<const Piece> pieces) override {
    downloaded_after_ = mark;
    return Memory::DownloadMarked(mark, pieces);
  }
  int64_t Mark() override { return ++marks_; }
  void Announce(int64_t mark) override { announced_ = mark; }
  int64_t announced() const override { return announced_; }
  // The mark of the last download that came after one.
  int64_t downloaded_after() const { return downloaded_after_; }
  void Fence() override { ++fences_; }
  int fences() const { return fences_; }

 private:
  void Free(std::byte*, int64_t) override {}

  int fences_ = 0;
  int64_t marks_ = 0, announced_ = 0, downloaded_after_ = 0;
};

}  // namespace baton::testing
