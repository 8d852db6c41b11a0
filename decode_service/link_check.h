// LinkCheck: before a decode worker takes work, it has blocks of its own filled over its link by a prefill
// worker that computes nothing (Prefill/TestLink), and measures the rate. Below the floor, or without an
// answer, it logs why and tries the next peer, for as long as it takes. One thread of its own, which waits;
// blocks, ticket, stream and writes are those of a hand-off, on the engine thread.
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
#include "baton/v1/prefill.grpc.pb.h"
#include "common/rpc/peer_calls.h"
#include "common/transfer/kv_receiver.h"
#include "common/worker/worker_runtime.h"

namespace baton::decode_service {

struct LinkCheckOptions {
  // Prefill workers (host:port, or dns:///host:port for each address of a name), tried in turn until one
  // passes. Empty: nothing is tested.
  std::vector<std::string> peers;
  // Gigabytes (10^9 bytes) per second.
  double floor_gbps = 0;
  // Between two rounds over the peers.
  absl::Duration pause = absl::Seconds(1);
  // For one peer.
  absl::Duration patience = absl::Seconds(30);
};

class LinkCheck {
 public:
  // Begins at once. `passed` is called once, on the check's thread. `runtime` serves, and outlives it.
  LinkCheck(LinkCheckOptions options, worker::WorkerRuntime& runtime, std::function<void()> passed);
  // Ends a test that is in progress. Before the runtime stops.
  ~LinkCheck();

 private:
  struct Test;

  void Work();
  // `address` is one of `peer`, by which the measured rate is known.
  bool Passes(const std::string& peer, const std::string& address);
  // Bytes per second. The first exchange only makes the link; the second one is measured.
  absl::StatusOr<double> Measure(const std::string& peer);
  absl::StatusOr<double> Exchange(const std::string& peer);
  // Engine thread. Takes blocks and has the peer fill them.
  absl::Status Start(const std::string& peer, Test& test);

  const LinkCheckOptions options_;
  worker::WorkerRuntime& runtime_;
  const std::function<void()> passed_;
  rpc::PeerCalls<v1::Prefill, v1::TestLinkRequest, v1::KvChunk> calls_;  // engine thread
  uint64_t next_ticket_ = uint64_t{1} << 63;                             // apart from the scheduler's
  transfer::KvReceiver* running_ = nullptr;  // of the test in progress; engine thread
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::string> said_ ABSL_GUARDED_BY(mutex_);  // why not, by address
  std::thread thread_;
};

}  // namespace baton::decode_service
