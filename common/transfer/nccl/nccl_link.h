// NcclLink: KV from GPU to GPU. A chunk's payload is packed into staging memory on the sender's GPU in the
// order of its kernels, crosses by NCCL behind the back of both engines, and is checked and scattered into
// the paged KV on the receiver's. The chunk message, on its gRPC stream, says which transfer of which meeting
// brings it; the id of the meeting travels with it, so no party has to be set up before.
//
// NCCL matches transfers by their order alone, so a pair's transfers are numbered and received in that order,
// whichever stream their messages take. Every message tells the sizes of those before it as well: a payload
// whose own message is late waits in staging memory, and one whose message never comes (its hand-off was
// cancelled) is received and dropped. A pair that stops all the same is aborted after transfer_timeout:
// everything on it fails with UNAVAILABLE, and the next use begins a new meeting after the quarantine. No
// other pair notices.
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
  // Staging memory in all. With half of it in use a sender is congested, with all of it Ship refuses; what is
  // received waits for room.
  int64_t staging_bytes = int64_t{256} << 20;
  // How long the thread sleeps while transfers are in progress and nothing has happened, at first and at
  // most.
  absl::Duration poll = absl::Microseconds(20), longest_poll = absl::Microseconds(320);
};

class NcclLink final : public LinkSender, public LinkReceiver {
 public:
  // Runs a task on the engine thread; false if it has ended.
  using Post = std::function<bool(absl::AnyInvocable<void()>)>;

  // All outlive it. `self`: this worker's incarnation.
  NcclLink(NcclApi api, Payload& payload, const Clock& clock, Incarnation self, Post post,
           const NcclLinkOptions& options);
  ~NcclLink() override { Close(); }

  std::string_view name() const override { return "nccl"; }
  absl::Status Ship(ConstPieces pieces, v1::KvChunk& chunk) override;
  bool congested() const override;
  void Receive(const v1::KvChunk& chunk, Pieces pieces, Done done) override;

  // Waits until all that was shipped has left or failed, for at most `max`. Any thread but the engine's.
  void Flush(absl::Duration max);
  // Ends all pairs and tells those who still wait, here and now. The engine thread has ended. Idempotent.
  void Close();

  // Counters for the probe. Any thread.
  struct Counts {
    size_t open_pairs = 0, quarantined = 0;
    int64_t joined = 0, failed = 0, aborted = 0, sent_bytes = 0, received_bytes = 0, dropped_bytes = 0;
    int64_t communicator_bytes = 0, staging_bytes = 0, staging_in_use = 0;
  };
  Counts counts() const;

 private:
  using Peer = Pairs::Peer;
  struct Staging {
    device::Memory::Buffer memory;
    int64_t bytes = 0;
  };
  struct Transfer {
    Staging staging;    // of a receive: once it is put
    int64_t bytes = 0;  // without the trailer
    // Of a receive: since when it waits where it is; and, once its message has come, where it goes.
    absl::Time since;
    std::vector<std::span<std::byte>> pieces;
    Done done;
  };
  using Numbered = std::map<uint64_t, Transfer>;
  // One meeting with one peer.
  struct Lane {
    NcclId id = {};
    uint64_t epoch = 0;
    uint64_t next = 0;         // number of the next transfer: to be numbered, or to be put
    Numbered waiting;          // not put yet
    Numbered under_way;        // put
    Numbered strays;           // received, their message has not come
    int64_t finished = 0;      // of those that were put
    std::deque<int64_t> sent;  // sizes of the last ones numbered: all that have not ended, and some more
  };

  absl::StatusOr<Staging> TakeStaging(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Staging staging) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Congested() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return staging_in_use_ > options_.staging_bytes / 2;
  }
  absl::Status Expect(const v1::KvChunk& chunk, Pieces pieces, Done& done);
  // Notes the number of this message's transfer and of those before it.
  absl::Status Note(const v1::PayloadApart& apart, Lane& lane, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(Transfer transfer, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails all transfers that wait on a lane.
  void Clear(const Peer& peer, Lane& lane, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts and completes what can be; true if something happened.
  bool Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AdvanceLane(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts what can be on the stream, in the order of the numbers.
  bool Put(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Complete(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropStrays(Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Sending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  uint64_t epochs_ ABSL_GUARDED_BY(mutex_) = 0;                    // of the meetings that this end began
  std::multimap<int64_t, Staging> spare_ ABSL_GUARDED_BY(mutex_);  // by size
  int64_t staging_bytes_ ABSL_GUARDED_BY(mutex_) = 0;              // spare and in use
  int64_t staging_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  // Ended when the engine's loop took no more tasks.
  std::vector<std::shared_ptr<Transfer>> untold_ ABSL_GUARDED_BY(mutex_);
  int64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::transfer
