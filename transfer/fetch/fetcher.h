// Fetcher: the end of a worker that fetches blocks from peers. It starts fetches, bounds how many run at
// once, learns how long they take, and predicts whether a fetch is faster than computing the blocks. It owns
// no blocks: the caller of Start holds the blocks and the Fetch. Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/time/time.h"
#include "baton/fleet/v1/blocks.pb.h"
#include "common/base/clock.h"
#include "engine/engine.h"
#include "protocol/forecast/linear_fit.h"
#include "transfer/fetch/fetch.h"
#include "transfer/fetch/probe.h"

namespace baton::fetch {

struct FetcherOptions {
  std::string worker_id;
  Incarnation incarnation;
  // Fetches at once before further ones are not begun.
  int max_fetches = 32;
  // How long a fetch runs before a prediction may end it.
  absl::Duration patience = absl::Milliseconds(20);
  // Fetches without asking a prediction: for tests, benchmarks, and links that are known to be fast.
  bool always = false;
  absl::Duration longest = absl::Seconds(30);  // that one may take even so
  // Seconds of a fetch, to begin with: for itself, and for each block. By default those of a mid-size model's
  // blocks over 10 Gbit/s, after a few round trips; right after a few fetches whatever the truth is.
  double first_base = 3e-3;
  double first_block = 1e-4;
};

class Fetcher {
 public:
  // All outlive it.
  Fetcher(FetcherOptions options, engine::Engine& engine, transfer::LinkReceiver& link, FetchClient& client,
          const Clock& clock, FetchProbe& probe);

  // Predicted seconds of a fetch of so many blocks, learnt from earlier fetches.
  double Seconds(int64_t blocks) const;
  // Its parts: seconds per block, and per fetch.
  double BlockSeconds() const { return seconds_.weights()[1]; }
  double BaseSeconds() const { return seconds_.weights()[0]; }
  // True if one should begin: it spares `saved` seconds of computing, which would begin in `wait` seconds.
  bool Worthwhile(const fleet::v1::PeerPrefix& peer, int64_t blocks, double wait, double saved) const;
  // True if waiting for the missing blocks beats computing them in `saved` seconds.
  bool WorthWaiting(const Fetch& fetch, double saved) const;

  // Asks `peer` for hashes[i] to be put into blocks[i], which the caller holds; both of one length, at least
  // 1. Ends by itself after `wait + saved` seconds, or the patience. Not to be destroyed in a callback.
  // `trace`: of the request that it is for.
  std::unique_ptr<Fetch> Start(const fleet::v1::PeerPrefix& peer, const std::string& request_id,
                               std::span<const kv::BlockHash> hashes, std::span<const BlockId> blocks,
                               double wait, double saved, Fetch::Callbacks callbacks,
                               const telemetry::TraceContext& trace = {});

  int running() const { return running_; }
  absl::Time Now() const { return clock_.Now(); }

 private:
  void Over(const Fetch& fetch, const absl::Status& status);

  const FetcherOptions options_;
  engine::Engine& engine_;
  transfer::LinkReceiver& link_;
  FetchClient& client_;
  const Clock& clock_;
  FetchProbe& probe_;
  const fleet::v1::Fingerprint fingerprint_;
  forecast::LinearFit<3> seconds_;  // of {1, blocks, 0}
  uint64_t next_ticket_ = 1;
  int running_ = 0;
};

}  // namespace baton::fetch
