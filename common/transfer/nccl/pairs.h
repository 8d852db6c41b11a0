// Pairs: the life of a worker's communicators, one per peer, as a plain state machine: no thread, no clock
// and no NCCL of its own. What NCCL is known to do wrong (a peer that dies leaves the other waiting; an abort
// that spreads; memory of dead peers never given back) ends here, at the pair that it happened to:
//
//   none --Use--> Joining --state ok--> Ready --error, stuck--> Quarantined --back-off over, Use--> Joining
//                    \--error, too slow--> Quarantined        Ready --least used, Drop--> none
//
// - A pair is made when it is first used. When more than `max_open` are open, the sending end ends the idle
//   pair that it used least recently. The receiving end can't know what is in flight: it follows when the
//   peer comes with a new id.
// - Pairs are watched: an asynchronous error, or a join or transfer that takes too long, ends the pair by an
//   abort, which is local and does not wait for the peer.
// - A pair that failed is refused for a while, twice as long each time, until a transfer has succeeded again.
//
// Driven by the link's thread, which calls Poll often while joins or transfers are in progress.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/transfer/nccl/nccl_api.h"

namespace baton::transfer {

struct PairOptions {
  size_t max_open = 16;
  absl::Duration join_timeout = absl::Seconds(10);
  absl::Duration transfer_timeout = absl::Seconds(5);
  absl::Duration first_quarantine = absl::Seconds(1);
  absl::Duration longest_quarantine = absl::Seconds(60);
  // A pair that has not been used for so long after its quarantine is forgotten: its peer is dead.
  absl::Duration remembered = absl::Minutes(10);
};

class Pairs {
 public:
  enum class State { kJoining, kReady, kQuarantined };
  // Who is at the other end, in which direction: a peer that both sends to us and receives from us has two.
  struct Peer {
    Incarnation incarnation;
    bool sends = false;  // the peer sends, we receive
    friend auto operator<=>(const Peer& a, const Peer& b) {
      if (const auto order = a.incarnation.value() <=> b.incarnation.value(); order != 0) return order;
      return a.sends <=> b.sends;
    }
    friend bool operator==(const Peer&, const Peer&) = default;
  };

  // `api` is complete and outlives it.
  Pairs(const NcclApi& api, const PairOptions& options) : api_(api), options_(options) {}
  ~Pairs();
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  // The sending end: the id of the pair with `peer`, made now if there is none. UNAVAILABLE: quarantined,
  // with the time left; INTERNAL: NCCL refused.
  absl::StatusOr<NcclId> Open(const Peer& peer, absl::Time now);
  // The receiving end: joins the pair that the peer made. Another id than the present one's means that the
  // peer has made a new pair: the old communicator is given up. UNAVAILABLE as above.
  absl::Status Join(const Peer& peer, const NcclId& id, absl::Time now);

  // Puts a transfer on the stream once the pair is ready. kBusy: not yet; kFailed: it is quarantined or gone.
  NcclState Send(const Peer& peer, const std::byte* data, size_t bytes, absl::Time now);
  NcclState Receive(const Peer& peer, std::byte* data, size_t bytes, absl::Time now);
  // How many of the pair's transfers are done since it was made; nothing if it has failed or is gone.
  std::optional<int64_t> Done(const Peer& peer, absl::Time now);

  // Checks all pairs. Returns those that failed since the last call: transfers that wait for them fail.
  std::vector<Peer> Poll(absl::Time now);
  // Ends a pair for a reason of the caller's (a payload with a wrong checksum, a transfer out of order).
  void Fail(const Peer& peer, std::string why, absl::Time now);
  // The peer is gone for good (a new incarnation took its place): forgets everything about it.
  void Forget(const Peer& peer);

  std::optional<State> state(const Peer& peer) const;
  // Why the pair is in quarantine.
  std::string reason(const Peer& peer) const;
  size_t open() const;
  size_t quarantined() const;
  // Of all open communicators.
  int64_t memory_bytes() const;
  int64_t joined_total() const { return joined_; }
  int64_t failed_total() const { return failed_; }
  int64_t aborted_total() const { return aborted_; }

 private:
  struct Pair {
    State state = State::kJoining;
    NcclId id = {};
    Communicator communicator = nullptr;
    absl::Time since;      // of the state
    absl::Time last_used;  // or, while there are transfers, when one last made progress
    int64_t put = 0;       // transfers
    int64_t done = 0;
    absl::Duration quarantine;
    std::string why;

    bool busy() const { return done < put; }
  };

  absl::Status Start(const Peer& peer, const NcclId& id, int rank, absl::Time now);
  absl::Status Quarantined(const Pair& pair, absl::Time now) const;
  NcclState Transfer(const Peer& peer, absl::Time now, const std::function<NcclState(Communicator)>& put);
  void End(const Peer& peer, Pair& pair, std::string why, absl::Time now);
  void MakeRoom();
  void Abort(Pair& pair);

  const NcclApi& api_;
  const PairOptions options_;
  std::map<Peer, Pair> pairs_;
  std::vector<Peer> failed_now_;
  int64_t joined_ = 0;
  int64_t failed_ = 0;
  int64_t aborted_ = 0;
};

}  // namespace baton::transfer
