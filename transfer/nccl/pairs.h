// Pairs: the life of a worker's communicators, one per peer, as a plain state machine: no thread, no clock,
// and none of NCCL's calls that may block. Those are handed out by TakeWork; whoever makes them tells what
// came of them by the On functions. What NCCL is known to do wrong (a peer that dies leaves the other
// waiting; an abort that blocks; memory of dead peers never given back) ends here, at the pair that it
// happened to:
//
// clang-format off
//   none --Open/Join--> Meeting --id--> Joining --state ok--> Ready --error, stuck--> Quarantined
//                          \---too slow----\--error, too slow-----------------------> Quarantined
//   Ready --idle, least used, Forget--> none         Quarantined --rested, Open/Join--> Meeting
// clang-format on
//
// - The sending end names a meeting and tells the peer in its messages. The peer asks for the meeting's id;
//   only then, knowing that the peer comes, does the sending end have NCCL make one, because an id whose
//   meeting nobody attends is never given back. Ids that were lost all the same are counted and bounded.
// - A pair that ends leaves its communicator to be aborted, which takes as long as NCCL likes. Until OnEnded
//   the communicator may still touch the memory of its transfers (`holds`).
// - Nobody hears of the death of a peer that is idle. Pairs that are not used are given up, by the sending
//   end first, soon if the peer seems dead (Suspect), and the least recently used one of too many. A
//   sending end whose peer has given a pair up hears of it when the peer asks again (Attend).
// - Pairs are watched: an asynchronous error, or a join or transfer that takes too long, ends the pair. It is
//   refused for a while, twice as long each time, until a transfer has succeeded again.
//
// Driven by the link's thread, which calls Poll often while joins or transfers are in progress.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "transfer/nccl/nccl_api.h"

namespace baton::transfer {

// Both ends' name of a meeting: random, so that only those who were told know it.
using Meeting = std::string;
inline constexpr size_t kMeetingBytes = 16;

struct PairOptions {
  // Bounds on pairs in which this worker sends, and on those in which it receives.
  size_t max_open = 32, max_receiving = 64;
  // From the first message to the peer's question, and from the id until both have joined.
  absl::Duration meet_timeout = absl::Seconds(10), join_timeout = absl::Seconds(30);
  absl::Duration transfer_timeout = absl::Seconds(5);
  absl::Duration first_quarantine = absl::Seconds(1);
  absl::Duration longest_quarantine = absl::Seconds(60);
  // A pair that has not been used for so long after its quarantine is forgotten: its peer is dead.
  absl::Duration remembered = absl::Minutes(10);
  // A pair without a transfer for so long is given up; by the receiving end after twice this time, so that
  // the sending end, which knows when a pair is used next, is first.
  absl::Duration idle = absl::Minutes(5);
  // The same for a peer that seems dead.
  absl::Duration suspect_idle = absl::Seconds(10);
  // Ids that NCCL has made and that no peer has come to: no more are made beyond these.
  int64_t max_lost_ids = 64;
};

class Pairs {
 public:
  enum class State { kMeeting, kJoining, kReady, kQuarantined };
  // The other end, with a direction: a peer that both sends to us and receives from us has two.
  struct Peer {
    Incarnation incarnation;
    bool sends = false;  // the peer sends, we receive
    // For a peer that sends, the address of the stream that brings its messages. A worker that claims to be
    // another one has another address, so that it reaches no pair but its own.
    std::string from;

    friend bool operator<(const Peer& a, const Peer& b) {
      if (a.incarnation != b.incarnation) return a.incarnation.value() < b.incarnation.value();
      return a.sends != b.sends ? a.sends < b.sends : a.from < b.from;
    }
    friend bool operator==(const Peer&, const Peer&) = default;
  };

  // Calls that may block, for the caller to make off its lock.
  struct Work {
    struct At {
      Peer peer;
      Meeting meeting;
    };
    struct Joins : At {
      NcclId id;
      int rank;
    };
    struct Ends {
      Meeting meeting;
      Communicator communicator;
    };
    std::vector<At> asks;      // the peer is asked for the id: OnId
    std::vector<At> makes;     // NCCL is asked for an id: OnId
    std::vector<Joins> joins;  // OnJoined
    std::vector<Ends> ends;    // all in one call, then OnEnded for each
    bool empty() const { return asks.empty() && makes.empty() && joins.empty() && ends.empty(); }
  };

  // `api` is complete and outlives it.
  Pairs(const NcclApi& api, const PairOptions& options) : api_(api), options_(options) {}
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  // The sending end: the meeting with `peer`, named by `name` if there is none yet. UNAVAILABLE: quarantined,
  // with the time left.
  absl::StatusOr<Meeting> Open(const Peer& peer, absl::FunctionRef<Meeting()> name, absl::Time now);
  // The sending end: the peer asks for the id of `meeting`, so it comes. OK: OnId will know. NOT_FOUND: there
  // is no such meeting any more, or the peer asks a second time, so it has given the pair up, and this end
  // does as well. RESOURCE_EXHAUSTED: too many ids were lost.
  absl::Status Attend(const Meeting& meeting, absl::Time now);
  // The receiving end: goes to the peer's meeting. Another one than the present one means that the peer has
  // made a new pair: the old communicator is given up. UNAVAILABLE as in Open.
  absl::Status Join(const Peer& peer, const Meeting& meeting, absl::Time now);

  // Takes the work due now. The caller does all of it.
  Work TakeWork() { return std::exchange(work_, {}); }
  bool has_work() const { return !work_.empty(); }
  // False if the pair has ended meanwhile, or ends by this. NOT_FOUND ends it without a rest.
  bool OnId(const Peer& peer, const Meeting& meeting, const absl::StatusOr<NcclId>& id, absl::Time now);
  void OnJoined(const Peer& peer, const Meeting& meeting, const absl::StatusOr<Communicator>& communicator,
                absl::Time now);
  void OnEnded(const Meeting& meeting);

  // Puts transfers on the stream, as one group, once the pair is ready. kBusy: not yet; kFailed: it is
  // quarantined or gone.
  NcclState Send(const Peer& peer, std::span<const TransferMemory> group, absl::Time now);
  NcclState Receive(const Peer& peer, std::span<const TransferMemory> group, absl::Time now);
  // How many of the pair's transfers are done since it was made; nothing if it has failed or is gone.
  std::optional<int64_t> Done(const Peer& peer, absl::Time now);

  // Checks all pairs. Returns those that ended since the last call: transfers that wait for them fail.
  struct Ended {
    Peer peer;
    Meeting meeting;
    std::string why;
  };
  std::vector<Ended> Poll(absl::Time now);
  // Ends a pair for a reason of the caller's (a transfer that was never announced).
  void Fail(const Peer& peer, std::string why, absl::Time now);
  // A stream from this address broke: its worker may be dead.
  void Suspect(std::string_view from);
  // Forgets everything about a peer.
  void Forget(const Peer& peer);
  // The same of all.
  void ForgetAll();

  std::optional<State> state(const Peer& peer) const;
  // The communicator of this meeting exists: it may touch what was put on it.
  bool holds(const Meeting& meeting) const;
  size_t open() const;
  size_t ending() const { return ending_.size(); }
  size_t quarantined() const;
  // Memory of all open communicators.
  int64_t memory_bytes() const;
  int64_t joined_total() const { return joined_; }
  int64_t failed_total() const { return failed_; }
  int64_t aborted_total() const { return aborted_; }
  // Made by NCCL, and met by both ends.
  int64_t ids_total() const { return ids_; }
  int64_t ids_met_total() const { return ids_met_; }

 private:
  struct Pair {
    State state = State::kMeeting;
    Meeting meeting;
    int rank = 0;
    bool coming = false;  // rank 0: the peer has asked
    bool made = false;    // rank 0: NCCL has made its id
    bool suspect = false;
    Communicator communicator = nullptr;
    absl::Time since;      // of the state
    absl::Time last_used;  // or, while there are transfers, when one last made progress
    int64_t put = 0;       // transfers
    int64_t done = 0;
    absl::Duration quarantine;
    std::string why;

    bool busy() const { return done < put; }
  };
  using Map = std::map<Peer, Pair>;

  Pair& Start(const Peer& peer, const Meeting& meeting, int rank, absl::Time now);
  // The pair that is at this meeting; null if it has ended.
  Pair* At(const Peer& peer, const Meeting& meeting, State state);
  absl::Status Quarantined(const Pair& pair, absl::Time now) const;
  using Put = std::function<NcclState(Communicator, std::span<const TransferMemory>)>;
  NcclState Transfer(const Peer& peer, const Put& put, std::span<const TransferMemory> group, absl::Time now);
  void Quarantine(const Peer& peer, Pair& pair, std::string why, absl::Time now);
  // Says what it waited for, if it has waited for too long.
  std::string TooSlow(const Pair& pair, absl::Time now) const;
  bool Idle(const Peer& peer, const Pair& pair, absl::Time now) const;
  Map::iterator Drop(Map::iterator pair, std::string why);
  void MakeRoom(bool sends);
  void Abort(Pair& pair);
  void Abort(const Meeting& meeting, Communicator communicator);

  const NcclApi& api_;
  const PairOptions options_;
  Map pairs_;
  Work work_;
  std::multiset<Meeting> ending_;
  std::vector<Ended> ended_now_;
  int64_t joined_ = 0;
  int64_t failed_ = 0;
  int64_t aborted_ = 0;
  int64_t ids_ = 0;
  int64_t ids_met_ = 0;
};

}  // namespace baton::transfer
