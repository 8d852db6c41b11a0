// NcclLink: KV from GPU to GPU. A chunk's payload is packed into staging memory on the sender's GPU in the
// order of its kernels, crosses by NCCL behind the back of both engines, and is checked and scattered into
// the paged KV on the receiver's. The chunk message, on its gRPC stream, says which transfer of which meeting
// brings it. A receiver that does not know the meeting asks the sender for its id (Ask, Meet), so no party
// has to be set up before.
//
// NCCL matches transfers by their order alone, so a pair's transfers are numbered and received in that order,
// whichever stream their messages take. Every message tells the sizes of those before it as well: a payload
// whose own message is late waits in staging memory, and one whose message never comes (its hand-off was
// cancelled) is received and dropped. A pair that stops all the same is aborted after transfer_timeout:
// everything on it fails with UNAVAILABLE, and the next use begins a new meeting after the quarantine. No
// other pair notices.
//
// A message is released (WhenReady) when its payload has been packed, and what is ready in a pair goes out as
// one group. Receives spin on the GPU until their sender's come, so only so many pairs receive at once; they
// take turns.
//
// One thread per link puts transfers, watches communicators and tells the engine thread through `post`. Ship
// and Receive are the engine thread's and never wait: what may block (ids, joins, aborts) has threads of its
// own (BlockingCalls), and no lock is held meanwhile. Memory that an aborted communicator may still touch is
// not used again before the abort has returned. If such a call does not come back, the link says so (fault)
// and refuses new transfers; those in progress go on. Device memory is taken once, when the link opens.
#pragma once

#include <deque>
#include <map>
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
#include "transfer/nccl/blocking_calls.h"
#include "transfer/nccl/pairs.h"
#include "transfer/nccl/payload.h"
#include "transfer/nccl/staging.h"

namespace baton::transfer {

struct NcclLinkOptions {
  PairOptions pairs;
  // The library's version: workers whose NCCL differ don't pair, because it refuses to join them.
  int version = 0;
  // Staging memory in all. A receiver of ours that takes its payloads slowly, and a sender, leave the share
  // of one more beside those at work. What is received waits for room.
  int64_t staging_bytes = int64_t{256} << 20;
  // Pairs that may have receives on the GPU at once.
  size_t most_receiving = 8;
  // How long the thread sleeps while transfers are in progress and nothing has happened, at first and at
  // most.
  absl::Duration poll = absl::Microseconds(20), longest_poll = absl::Microseconds(320);
  // A call of NCCL that has not come back after so long is a fault.
  absl::Duration call_deadline = absl::Seconds(30);
  // Called by Close if calls have not come back by then: a thread inside NCCL can't be ended. Empty: it ends
  // the process, with an error.
  std::function<void(const std::string& why)> give_up;
};

class NcclLink final : public LinkSender, public LinkReceiver {
 public:
  // Runs a task on the engine thread; false if it has ended.
  using Post = std::function<bool(absl::AnyInvocable<void()>)>;
  // Asks the worker at an address for the id of its meeting, by its LinkSender::Meet. Engine thread; so is
  // the answer, which comes once, or never if the link closes first.
  using Ask = std::function<void(const std::string& address, const Meeting& meeting, Answer answer)>;

  // All outlive it. `self`: this worker's incarnation. RESOURCE_EXHAUSTED: there is not enough memory.
  static absl::StatusOr<std::unique_ptr<NcclLink>> Create(NcclApi api, Payload& payload, const Clock& clock,
                                                          Incarnation self, Post post, Ask ask,
                                                          const NcclLinkOptions& options);
  ~NcclLink() override { Close(); }

  std::string_view name() const override { return "nccl"; }
  std::string pairing() const override { return Pairing(options_.version); }
  static std::string Pairing(int version);
  absl::Status Ship(ConstPieces pieces, fleet::v1::KvChunk& chunk) override;
  int64_t Footprint(int64_t bytes) const override;
  int64_t Reserve(const protocol::Ticket& ticket, int64_t least, int64_t most) override;
  void Unreserve(const protocol::Ticket& ticket) override;
  void WhenReady(absl::AnyInvocable<void()> then) override;
  void Meet(const std::string& meeting, Answer answer) override;
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done done) override;
  void Suspect(std::string_view from) override;

  // Waits until all that was shipped has left or failed, for at most `max`. Any thread but the engine's.
  void Flush(absl::Duration max);
  // Ends all pairs and tells those who still wait, here and now. The engine thread has ended. Idempotent.
  void Close();

  // Why the process should be replaced: a call of NCCL does not come back. Empty: it need not. Any thread;
  // the engine's loop is woken when that changes.
  std::string fault() const;

  // Counters for the probe. Any thread.
  struct Counts {
    size_t open_pairs = 0, ending = 0, quarantined = 0;
    int64_t joined = 0, failed = 0, aborted = 0, sent_bytes = 0, received_bytes = 0, dropped_bytes = 0;
    int64_t ids = 0, ids_met = 0;
    int64_t calls = 0;  // of NCCL that may block, in progress
    bool fault = false;
    int64_t communicator_bytes = 0, staging_bytes = 0, staging_in_use = 0;
  };
  Counts counts() const;

 private:
  using Peer = Pairs::Peer;
  struct Transfer {
    Staging::Run staging;  // of a receive: once it is put
    int64_t bytes = 0;     // without the trailer
    uint64_t pack = 0;     // of a send: it may leave once this has ended
    // For a receive: when it began to wait where it is; and, once its message has come, where it goes.
    absl::Time since;
    std::vector<std::span<std::byte>> pieces;
    Done done;
  };
  using Numbered = std::map<uint64_t, Transfer>;
  // One meeting with one peer.
  struct Lane {
    Meeting meeting;
    uint64_t epoch = 0;
    uint64_t next = 0;         // number of the next transfer: to be numbered, or to be put
    Numbered waiting;          // not put yet
    Numbered under_way;        // put
    Numbered strays;           // received, their message has not come
    int64_t finished = 0;      // of those that were put
    std::deque<int64_t> sent;  // sizes of the last ones numbered: all that have not ended, and some more
    uint64_t asked = 0;        // its place among those that wait for their turn to receive; 0: it does not

    bool busy() const { return !waiting.empty() || !under_way.empty(); }
  };
  using Lanes = std::map<Peer, Lane>;

  NcclLink(NcclApi api, Payload& payload, const Clock& clock, Incarnation self, Post post, Ask ask,
           const NcclLinkOptions& options, device::Memory::Buffer slab);

  void GiveBack(const Staging::Run& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Staging memory that payloads for this receiver may take, and what they have of it, reserved or in use.
  struct Share {
    int64_t bytes, used;
  };
  Share ShareOf(Incarnation receiver) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReservation(const protocol::Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Usable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Expect(const fleet::v1::KvChunk& chunk, std::string_view from, Pieces pieces, Done& done);
  // Whose transfer a message is about. Who knows the meeting's name has it from the peer itself.
  Peer PeerOf(const fleet::v1::PayloadApart& apart, std::string_view from) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes the number of this message's transfer and of those before it.
  absl::Status Note(const fleet::v1::PayloadApart& apart, Lane& lane, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(Transfer transfer, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails all transfers that wait on a lane.
  void Clear(const Peer& peer, Lane& lane, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts and completes what can be; true if something happened.
  bool Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Unpacked transfers, in their order, each with its status. Their memory is given back.
  using Unpacked = std::vector<std::pair<std::shared_ptr<Transfer>, absl::Status>>;
  Unpacked TakeUnpacked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AdvanceLane(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives a receive its staging memory; false if it has to wait for some.
  bool Stage(const Lane& lane, Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if a lane may put receives now. Others get their turn in the order in which they asked, and while
  // one waits, no lane puts more.
  bool MayReceive(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The transfers of a lane that can be put now, in the order of their numbers, as one group.
  std::vector<TransferMemory> NextGroup(const Peer& peer, Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts them on the stream.
  bool Put(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Complete(const Peer& peer, Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropStrays(Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives memory back that nothing touches any more.
  void GiveBackReleased() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Announcements whose packs have ended.
  using Announcements = std::vector<absl::AnyInvocable<void()>>;
  Announcements TakeReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Sending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Busy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The thread, and what it hands out.
  void Work();
  void Begin(Pairs::Work work) ABSL_LOCKS_EXCLUDED(mutex_);
  void AskFor(const Pairs::Work::At& at);
  void MakeId(const Pairs::Work::At& at);
  void Join(const Pairs::Work::Joins& join);
  void End(const std::vector<Pairs::Work::Ends>& ends);

  const NcclApi api_;
  Payload& payload_;
  const Clock& clock_;
  const Incarnation self_;
  const Post post_;
  const Ask ask_;
  const NcclLinkOptions options_;

  mutable absl::Mutex mutex_;
  Pairs pairs_ ABSL_GUARDED_BY(mutex_);
  Lanes lanes_ ABSL_GUARDED_BY(mutex_);
  uint64_t epochs_ ABSL_GUARDED_BY(mutex_) = 0;  // of the meetings that this end began
  Staging staging_ ABSL_GUARDED_BY(mutex_);
  // By receiver and ticket: what is left of what was set aside.
  std::map<std::pair<uint64_t, uint64_t>, Staging::Run> reserved_ ABSL_GUARDED_BY(mutex_);
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;  // more than could be set aside
  // Memory that an aborted communicator, or a pack without a transfer, may still touch.
  std::multimap<Meeting, Staging::Run> held_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, Staging::Run>> packing_ ABSL_GUARDED_BY(mutex_);
  // Transfers that the payload is unpacking, by its numbers, in order.
  std::deque<std::pair<uint64_t, std::shared_ptr<Transfer>>> unpacking_ ABSL_GUARDED_BY(mutex_);
  // The last pack, and what waits for packs, in order.
  uint64_t last_pack_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<uint64_t, absl::AnyInvocable<void()>>> unready_ ABSL_GUARDED_BY(mutex_);
  uint64_t asks_ ABSL_GUARDED_BY(mutex_) = 0;      // for a turn to receive
  absl::Time room_since_ ABSL_GUARDED_BY(mutex_);  // when staging memory last came back
  // Peers that come, by meeting, and wait for its id.
  std::map<Meeting, Answer> asked_ ABSL_GUARDED_BY(mutex_);
  // Ended when the engine's loop took no more tasks.
  std::vector<std::shared_ptr<Transfer>> untold_ ABSL_GUARDED_BY(mutex_);
  int64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string fault_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  BlockingCalls calls_;
  std::thread thread_;
};

}  // namespace baton::transfer
