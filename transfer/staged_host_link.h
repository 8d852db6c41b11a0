// StagedHostLink: the host link (host_link.h) for KV that lies on a device. The engine thread only issues
// work: a payload is gathered on the device, and a thread of the sender brings it to the host, checksums it
// and hands the chunk on; a thread of the receiver checks a payload and brings it into its blocks. Both ends
// take payloads in order, and hold a bounded number of bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/device/memory.h"
#include "transfer/link.h"

namespace baton::transfer {

class StagedHostLinkSender final : public LinkSender {
 public:
  // At most `staging_bytes` are gathered and not sent, more than any payload has. `wake` runs on the link's
  // thread when the link is no longer congested. `memory` outlives the sender. RESOURCE_EXHAUSTED: the device
  // has no room for them.
  static absl::StatusOr<std::unique_ptr<StagedHostLinkSender>> Create(device::Memory& memory,
                                                                      int64_t staging_bytes,
                                                                      std::function<void()> wake);
  // Whatever was shipped is handed on first.
  ~StagedHostLinkSender() override;

  std::string_view name() const override { return "host"; }
  // Waits only while staging_bytes are on their way.
  absl::Status Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) override;
  void WhenReady(absl::AnyInvocable<void()> then) override;
  bool congested() const override;
  // Waits until all that was shipped has been handed on, for at most `max`. Any thread.
  void Flush(absl::Duration max);

 private:
  // A payload that was gathered, and the chunk that it goes into; or, without a chunk, what WhenReady was
  // given.
  struct Task {
    uint64_t number = 0;
    size_t bytes = 0;
    fleet::v1::KvChunk* chunk = nullptr;
    absl::AnyInvocable<void()> then;
  };

  StagedHostLinkSender(device::Memory& memory, int64_t staging_bytes, std::function<void()> wake)
      : memory_(memory), most_(staging_bytes / 2), wake_(std::move(wake)) {}
  void Run();
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return tasks_.empty(); }
  bool has_news() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); }

  device::Memory& memory_;
  const int64_t most_;  // bytes on their way before it is congested
  const std::function<void()> wake_;
  std::unique_ptr<device::Outbound> outbound_;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);  // the first is being worked on
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;       // of their payloads
  std::thread thread_;
};

class StagedHostLinkReceiver final : public LinkReceiver {
 public:
  // Runs a task on the engine thread; false if that has ended.
  using Post = std::function<bool(absl::AnyInvocable<void()>)>;
  // `memory` outlives it.
  StagedHostLinkReceiver(device::Memory& memory, Post post);
  ~StagedHostLinkReceiver() override { Close(); }

  std::string_view name() const override { return "host"; }
  // Waits while kMostBytes wait to be written.
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) override;
  // Writes what has come, and tells all who wait. The engine thread has ended.
  void Close();

 private:
  static constexpr size_t kMostBytes = size_t{64} << 20;
  struct Arrival {
    const fleet::v1::KvChunk* chunk = nullptr;
    std::vector<device::Memory::Piece> pieces;
    Done done;
    absl::Status status;
  };

  void Run();
  // Calls `done` of what has been written. Engine thread.
  void Tell();
  bool has_news() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !arrivals_.empty(); }
  bool has_room() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return bytes_ < kMostBytes; }

  device::Memory& memory_;
  const Post post_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;              // of their payloads
  std::deque<Arrival> written_ ABSL_GUARDED_BY(mutex_);   // and not told
  std::thread thread_;
};

}  // namespace baton::transfer
