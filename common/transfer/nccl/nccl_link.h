// NcclLink: KV from GPU to GPU. A chunk's payload is packed into staging memory on the sender's GPU in the
// order of its kernels, crosses by NCCL behind the back of both engines, and is checked and scattered into
// the paged KV on the receiver's. The chunk message, on its gRPC stream, says which transfer of which meeting
// brings it; the id of the meeting travels with it, so no party has to be set up before.
//
// NCCL matches transfers by their order alone, so a pair's transfers are numbered and received in that order,
// whichever stream their messages take. A number that never comes (its message was refused, its stream ended)
// stops that pair within transfer_timeout: it is aborted, everything on it fails with UNAVAILABLE, and the
// next use begins a new meeting after the quarantine. No other pair notices.
//
// One thread per link puts transfers, watches communicators and tells the engine thread through `post`. Ship
// and Receive are the engine thread's and never wait.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/transfer/link.h"
#include "common/transfer/nccl/pairs.h"
#include "common/transfer/nccl/payload.h"

namespace baton::transfer {

struct NcclLinkOptions {
  PairOptions pairs;
  // Staging memory in all, sending and receiving; a payload that finds none is refused.
  int64_t staging_bytes = int64_t{256} << 20;
  // How long the thread sleeps while transfers are under way and nothing has happened.
  absl::Duration poll = absl::Microseconds(20);
};

class NcclLink final : public LinkSender, public LinkReceiver {
 public:
  // Runs a task on the engine thread; false if it has ended.
  using Post = std::function<bool(absl::AnyInvocable<void()>)>;

  // All outlive it. `self`: this worker's incarnation.
  NcclLink(NcclApi api, Payload& payload, const Clock& clock, Incarnation self, Post post,
           const NcclLinkOptions& options);
  // Ends all pairs and tells those who still wait, here and now. The engine thread has ended.
  ~NcclLink() override;

  std::string_view name() const override { return "nccl"; }
  absl::Status Ship(ConstPieces pieces, v1::KvChunk& chunk) override;
  void Receive(const v1::KvChunk& chunk, Pieces pieces, Done done) override;

  // Counters for the probe. Any thread.
  struct Counts {
    size_t open_pairs = 0;
    int64_t joined = 0, failed = 0, sent_bytes = 0, received_bytes = 0;
  };
  Counts counts() const;

 private:
  using Peer = Pairs::Peer;
  struct Staging {
    device::Memory::Buffer memory;
    int64_t bytes = 0;
  };
  struct Transfer {
    Staging staging;
    int64_t bytes = 0;  // without the trailer
    // Of a receive:
    std::vector<std::span<std::byte>> pieces;
    Done done;
    absl::Time arrived;
  };
  // One meeting with one peer.
  struct Lane {
    NcclId id = {};
    uint64_t epoch = 0;
    uint64_t next = 0;                     // number of the next transfer: to be numbered, or to be put
    std::map<uint64_t, Transfer> waiting;  // by number, not put yet
    std::deque<Transfer> under_way;        // put, in order
    int64_t finished = 0;                  // of those that were put
  };

  absl::StatusOr<Staging> TakeStaging(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Staging staging) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Expect(const v1::KvChunk& chunk, Pieces pieces, Done& done);
  void Tell(Transfer transfer, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails all that waits on a lane.
  void Clear(const Peer& peer, Lane& lane, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts and completes what can be; true if something happened.
  bool Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AdvanceLane(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Busy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  const NcclApi api_;
  Payload& payload_;
  const Clock& clock_;
  const Incarnation self_;
  const Post post_;
  const NcclLinkOptions options_;

  mutable absl::Mutex mutex_;
  Pairs pairs_ ABSL_GUARDED_BY(mutex_);
  std::map<Peer, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  std::vector<Staging> spare_ ABSL_GUARDED_BY(mutex_);
  int64_t staging_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // spare and in use
  int64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::transfer
