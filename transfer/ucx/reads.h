// Reads: the receiving half of the ucx link, as a plain state machine over a Fabric: which payloads are read
// from whom, one connection per peer. No thread and no clock of its own.
//
//   waiting --memory, a connection--> [pending --slot: complete-->] reading --> checking --slot: held-->
//   landed
//
// - A read that has landed is what its sender packed: the sender held it until after it was read.
// - A peer that fails, or from which nothing comes for too long, is disconnected: its reads end at once, and
//   their memory is used again when the fabric does not touch it any more. The peer rests, twice as long each
//   time, until a read has succeeded again. A restarted peer has another address, and so no rest.
// - A peer whose stream broke is given little more time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/handoff.pb.h"
#include "transfer/link.h"
#include "transfer/nccl/staging.h"
#include "transfer/ucx/fabric.h"

namespace baton::transfer {

struct ReadsOptions {
  // A peer from which nothing has come for so long is disconnected; and one whose stream broke.
  absl::Duration timeout = absl::Seconds(5), suspect_timeout = absl::Milliseconds(200);
  absl::Duration first_rest = absl::Seconds(1), longest_rest = absl::Seconds(60);
  // A connection without a read for so long is closed, and the least used one of too many.
  absl::Duration idle = absl::Minutes(5);
  size_t max_connections = 64;
  // Peers that are remembered, resting ones included; reads from more are refused.
  size_t max_peers = 1024;
  // How often the slot of a payload that is not complete yet is looked at.
  absl::Duration look = absl::Microseconds(100);
};

class Reads {
 public:
  struct Request {
    fleet::v1::PayloadToRead payload;
    std::string from;   // the address of the stream
    int64_t bytes = 0;  // of payload and checksums
    std::vector<std::span<std::byte>> pieces;
    LinkReceiver::Done done;
  };
  // How a request ended. OK: the payload is in `run`.
  struct Ended {
    Request request;
    Staging::Run run;
    absl::Status status;
  };
  // The link's memory, registered with the fabric.
  struct Memory {
    std::function<std::optional<Staging::Run>(int64_t bytes)> take;
    std::function<void(const Staging::Run& run)> give_back;
    int64_t bytes = 0;
    // Where slots land, registered too.
    std::span<uint64_t> slots;
  };

  // `fabric` outlives it.
  Reads(Fabric& fabric, Memory memory, const ReadsOptions& options);

  void Begin(Request request, absl::Time now);
  void Suspect(std::string_view from, absl::Time now);
  // Moves everything on; true if something happened.
  bool Advance(absl::Time now);
  std::vector<Ended> TakeEnded() { return std::exchange(ended_, {}); }
  // Takes the peers' notices.
  std::vector<std::string> TakeNotices() { return std::exchange(notices_, {}); }
  // Ends everything; Advance until the fabric is idle.
  void Close(absl::Time now);

  // How long nothing needs to be done unless the fabric tells of something.
  absl::Duration Pause() const;
  // Some read waits for memory or is in progress.
  bool busy() const { return !reads_.empty(); }
  // Memory that a closed connection may still write.
  bool draining() const { return !draining_.empty(); }

  size_t connections() const;
  size_t resting() const { return resting_; }
  int64_t connected_total() const { return connected_; }
  int64_t failed_total() const { return failed_; }
  int64_t gone_total() const { return gone_; }

 private:
  enum class State { kWaiting, kPending, kLooking, kReading, kChecking };
  // A peer, by the address of its streams and where its memory is: a worker that names another's reaches no
  // connection but its own.
  struct Source {
    std::string from, address, payload_key, slot_key;
    Fabric::Endpoint endpoint = 0;
    std::deque<uint64_t> waiting;
    int64_t active = 0, active_bytes = 0;
    absl::Time moved, used;
    std::optional<absl::Time> suspected;
    absl::Time rests_until = absl::InfinitePast();
    absl::Duration rest;
    std::string why;
  };
  struct Read {
    Request request;
    Source* source = nullptr;
    State state = State::kWaiting;
    Staging::Run run;
    size_t slot = 0;
    absl::Time look;  // kPending: when the slot is looked at again
  };
  // Memory that a read of a closed connection may still touch.
  struct Drain {
    Staging::Run run;
    size_t slot = 0;
  };
  using Map = std::map<uint64_t, Read>;

  // Null: too many peers.
  Source* SourceOf(const Request& request, absl::Time now);
  bool Start(Source& source, absl::Time now);
  bool Connect(Source& source, absl::Time now);
  void Look(uint64_t number, Read& read, State state);
  void Stepped(Map::iterator read, const absl::Status& status, absl::Time now);
  void Land(Map::iterator read, absl::Time now);
  void End(Map::iterator read, absl::Status status);
  void Fail(Source& source, const std::string& why, absl::Time now);
  void Disconnect(Source& source, const absl::Status& status);
  void Handle(Fabric::Event event, absl::Time now);

  Fabric& fabric_;
  const Memory memory_;
  const ReadsOptions options_;
  std::map<std::string, Source> sources_;
  Map reads_;
  std::map<uint64_t, Drain> draining_;
  std::vector<size_t> free_slots_;
  std::vector<Ended> ended_;
  std::vector<std::string> notices_;
  std::vector<Fabric::Event> events_;
  uint64_t next_ = 1;
  size_t resting_ = 0;
  int64_t connected_ = 0, failed_ = 0, gone_ = 0;
};

}  // namespace baton::transfer
