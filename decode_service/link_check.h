// LinkCheck: before a decode worker takes work, it has blocks of its own filled over its link by a prefill
// worker that computes nothing (Prefill/TestLink), several times at once, and measures the rate. Below the
// floor, over another transport than was asked for, or without an answer, it logs why and tries the next
// peer, for as long as it takes. One thread of its own, which waits; blocks, tickets, streams and writes are
// those of hand-offs, on the engine thread. No peer can hold it up: what has not ended when the patience
// with it does is left behind, with its blocks, until the link has ended its writes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/prefill.grpc.pb.h"
#include "common/rpc/peer_calls.h"
#include "transfer/kv_receiver.h"
#include "worker/worker_runtime.h"

namespace baton::decode_service {

struct LinkCheckOptions {
  // Prefill workers (host:port, or dns:///host:port for each address of a name), tried in turn until one
  // passes. Empty: nothing is tested.
  std::vector<std::string> peers;
  // Gigabytes (10^9 bytes) per second.
  double floor_gbps = 0;
  // Transports allowed to NCCL: transfer::NcclLog::Allowed.
  std::string transport = "any";
  // Between two rounds over the peers.
  absl::Duration pause = absl::Seconds(1);
  // For one peer.
  absl::Duration patience = absl::Seconds(30);
  // A measurement lasts until so much has come, or for so long, whichever is first: a few blocks would
  // measure the way to the peer and back.
  int64_t bytes = int64_t{1} << 30;
  absl::Duration time = absl::Seconds(0.5);
};

class LinkCheck {
 public:
  // Begins at once. `passed` is called once, on the check's thread. `runtime` serves, and outlives it.
  LinkCheck(LinkCheckOptions options, worker::WorkerRuntime& runtime, std::function<void()> passed);
  // After the runtime has stopped, which ends the writes of tests that were left behind.
  ~LinkCheck();
  // Ends a test that is in progress. Before the runtime stops. Idempotent.
  void Stop();

 private:
  // Streams at once.
  static constexpr int kInFlight = 4;
  struct Exchange;
  struct Run;

  void Work();
  // `address` is one of `peer`, by which the measured rate is known.
  bool Passes(const std::string& peer, const std::string& address);
  // Bytes per second. The first exchange only makes the link; those after it are measured.
  absl::StatusOr<double> Measure(const std::string& address);
  // Moves so much, at least a block, or for so long, with so many streams at once.
  absl::StatusOr<double> Move(const std::string& address, int64_t bytes, int streams, absl::Time deadline);

  // Engine thread. Takes blocks and has the peer fill them.
  absl::Status Start(Run& run);
  void OnEnded(Run& run, Exchange& exchange, const absl::Status& status);
  void Close(Run& run, const absl::Status& why);

  const LinkCheckOptions options_;
  worker::WorkerRuntime& runtime_;
  const std::function<void()> passed_;
  rpc::PeerCalls<fleet::v1::Prefill, fleet::v1::TestLinkRequest, fleet::v1::KvChunk> calls_;  // engine thread
  uint64_t next_ticket_ = uint64_t{1} << 63;  // apart from the scheduler's
  std::vector<std::unique_ptr<Run>> runs_;    // engine thread; the last may be at work
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::string> said_ ABSL_GUARDED_BY(mutex_);  // why not, by address
  std::thread thread_;
};

}  // namespace baton::decode_service
