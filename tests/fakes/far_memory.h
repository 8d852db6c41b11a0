// FarMemory: the host's memory, which says that the host may not look into it. What runs over it is treated
// as a GPU: vectors are placed, logits downloaded. Counts the fences.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "engine/device/memory.h"

namespace baton::device {

class FarMemory final : public Memory {
 public:
  std::string name() const override { return "far memory"; }
  bool host() const override { return false; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override { return HostMemory().Allocate(bytes); }
  absl::Status Upload(const void* host, std::byte* here, int64_t bytes) override {
    return HostMemory().Upload(host, here, bytes);
  }
  absl::Status Download(const std::byte* here, void* host, int64_t bytes) override {
    return HostMemory().Download(here, host, bytes);
  }
  // Copies at once; a test may hold up what is taken.
  absl::StatusOr<std::unique_ptr<Outbound>> MakeOutbound(int64_t) override {
    return std::make_unique<FarOutbound>(*this);
  }
  int64_t Mark() override { return ++marks_; }
  void Announce(int64_t mark) override { announced_ = mark; }
  int64_t announced() const override { return announced_; }
  // The mark of the last payload that was gathered.
  int64_t gathered_after() const { return gathered_after_; }
  // While held, Take waits.
  void HoldTakes(bool held) {
    absl::MutexLock lock(&mutex_);
    held_ = held;
  }
  void Fence() override { ++fences_; }
  int fences() const { return fences_; }

 private:
  class FarOutbound final : public Outbound {
   public:
    explicit FarOutbound(FarMemory& memory) : memory_(memory) {}
    uint64_t Gather(int64_t mark, std::span<const Piece> pieces) override {
      memory_.gathered_after_ = mark;
      absl::MutexLock lock(&memory_.mutex_);
      Parcel& parcel = parcels_.emplace_back();
      for (const Piece& piece : pieces) {
        parcel.emplace_back(piece.at, std::string(reinterpret_cast<const char*>(piece.here),
                                                  static_cast<size_t>(piece.bytes)));
      }
      return ++gathered_;
    }
    void Take(uint64_t number, std::byte* payload) override {
      absl::MutexLock lock(&memory_.mutex_);
      memory_.mutex_.Await(absl::Condition(
          +[](bool* held) { return !*held; }, &memory_.held_));
      BATON_CHECK_EQ(number, ++taken_);
      for (const auto& [at, bytes] : parcels_.front()) std::memcpy(payload + at, bytes.data(), bytes.size());
      parcels_.pop_front();
    }

   private:
    using Parcel = std::vector<std::pair<int64_t, std::string>>;
    FarMemory& memory_;
    std::deque<Parcel> parcels_;
    uint64_t gathered_ = 0, taken_ = 0;
  };
  void Free(std::byte*, int64_t) override {}

  int fences_ = 0;
  int64_t marks_ = 0, announced_ = 0, gathered_after_ = 0;
  absl::Mutex mutex_;
  bool held_ = false;
};

}  // namespace baton::device
