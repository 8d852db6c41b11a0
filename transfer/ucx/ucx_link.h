// UcxLink: KV that the decode worker reads out of the prefill worker's memory, one-sided. The sender packs a
// payload into its registered staging memory and says in the chunk message where it lies and what it is
// called; the receiver reads it into staging memory of its own, sees that the sender still held it
// (held_payloads.h), tells the sender so, checks and copies it to its blocks. Nobody but the receiver ever
// writes into the receiver's memory, so there are no late writes: what is abandoned is not read.
//
// A sender holds a payload until its receiver has read it, the stream of its ticket breaks, or nothing has
// been read by that receiver for twice the timeout. Names are random, and told on the stream alone: who was
// not told one can't end another's payload.
//
// One thread per link drives the fabric and the state of reads, which only it touches; no call of the fabric
// is made under the link's lock. Ship and Receive are the engine thread's and never wait. Memory is taken and
// registered once, when the link opens.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "transfer/link.h"
#include "transfer/nccl/payload.h"
#include "transfer/nccl/staging.h"
#include "transfer/ucx/fabric.h"
#include "transfer/ucx/held_payloads.h"
#include "transfer/ucx/reads.h"

namespace baton::transfer {

struct UcxLinkOptions {
  ReadsOptions reads;
  // Where payloads lie (Ucx::place).
  std::string place = "host";
  // Staging memory in all. With half of it in use a sender is congested, with all of it Ship refuses; what is
  // to be read waits for room.
  int64_t staging_bytes = int64_t{256} << 20;
  // Payloads held, and reads in progress, at once.
  size_t max_payloads = 4096;
  // How long Close waits for reads in progress to end, of the machine's time.
  absl::Duration close_timeout = absl::Seconds(2);
};

class UcxLink final : public LinkSender, public LinkReceiver {
 public:
  // Runs a task on the engine thread; false if it has ended.
  using Post = std::function<bool(absl::AnyInvocable<void()>)>;

  // `payload` and `clock` outlive it. `self`: this worker's incarnation. RESOURCE_EXHAUSTED: there is not
  // enough memory, or it can't be registered.
  static absl::StatusOr<std::unique_ptr<UcxLink>> Create(std::unique_ptr<Fabric> fabric, Payload& payload,
                                                         const Clock& clock, Incarnation self, Post post,
                                                         const UcxLinkOptions& options);
  ~UcxLink() override { Close(); }

  std::string_view name() const override { return "ucx"; }
  std::string pairing() const override { return Pairing(fabric_->version(), options_.place); }
  static std::string Pairing(std::string_view version, std::string_view place);
  absl::Status Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) override;
  bool congested() const override;
  void Forget(Incarnation receiver, TicketId ticket) override;
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) override;
  void Suspect(std::string_view from) override;

  // Waits until all that was shipped has been read or given up, for at most `max`. Any thread but the
  // engine's.
  void Flush(absl::Duration max);
  // Ends everything and tells those who still wait, here and now. The engine thread has ended. Idempotent.
  void Close();

  // Counters for the probe. Any thread.
  struct Counts {
    size_t connections = 0, held = 0, resting = 0;
    int64_t connected = 0, failed = 0, gone = 0, given_up = 0;
    int64_t sent_bytes = 0, received_bytes = 0;
    int64_t staging_bytes = 0, staging_in_use = 0;
  };
  Counts counts() const;

 private:
  // A read that has landed, on its way into its blocks.
  struct Landed {
    Reads::Request request;
    Staging::Run run;
  };
  using Unpacked = std::vector<std::pair<std::shared_ptr<Landed>, absl::Status>>;
  struct Keys {
    std::string payloads, slots;
  };

  UcxLink(std::unique_ptr<Fabric> fabric, Payload& payload, const Clock& clock, Incarnation self, Post post,
          const UcxLinkOptions& options, device::Memory::Buffer slab, device::Memory::Buffer slots,
          Keys keys);

  absl::Status Expect(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done& done);
  bool Congested() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return staging_.in_use() > options_.staging_bytes / 2;
  }
  void GiveBack(const Staging::Run& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives up a payload that nobody reads: its pack may go on.
  void GiveUp(const HeldPayloads::Payload& payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sending half's periodic work; true if something happened.
  bool AdvanceHeld(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeNotices(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(Reads::Ended ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Unpacked TakeUnpacked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The thread.
  void Work();
  bool Turn();
  absl::Duration Pause();

  Payload& payload_;
  const Clock& clock_;
  const Incarnation self_;
  const Post post_;
  const UcxLinkOptions options_;
  const Keys keys_;
  // In the first half what this worker shows, in the second where others' slots land.
  const device::Memory::Buffer slots_;

  mutable absl::Mutex mutex_;
  Staging staging_ ABSL_GUARDED_BY(mutex_);
  HeldPayloads held_ ABSL_GUARDED_BY(mutex_);
  // Given up before they were packed, by pack.
  std::deque<std::pair<uint64_t, Staging::Run>> packing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Reads::Request> asked_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> suspects_ ABSL_GUARDED_BY(mutex_);
  // Transfers that the payload is unpacking, by its numbers, in order.
  std::deque<std::pair<uint64_t, std::shared_ptr<Landed>>> unpacking_ ABSL_GUARDED_BY(mutex_);
  // Ended when the engine's loop took no more tasks.
  std::vector<std::shared_ptr<Landed>> untold_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's. The fabric ends before the memory that it reads into.
  const std::unique_ptr<Fabric> fabric_;
  Reads reads_;
  std::thread thread_;
};

}  // namespace baton::transfer
