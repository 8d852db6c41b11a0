// Probe: what a worker measures of fetches, on both ends, as verbs. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"

namespace baton::fetch {

class Probe {
 public:
  Probe(telemetry::Metrics& metrics, std::string_view link);

  // Of fetches from peers.
  enum class Outcome { kComplete, kPartial, kMissed, kGivenUp, kRefused, kFailed };
  void Began();
  void Ended(Outcome outcome, int64_t blocks, int64_t bytes, absl::Duration took);

  // Of peers' fetches from here.
  enum class Served { kOk, kMissed, kCancelled, kRefused, kFailed };
  void Serve(Served outcome, int64_t blocks, int64_t bytes);
  void Serving(size_t now);

 private:
  prometheus::Counter& complete_;
  prometheus::Counter& partial_;
  prometheus::Counter& missed_;
  prometheus::Counter& given_up_;
  prometheus::Counter& refused_;
  prometheus::Counter& failed_;
  prometheus::Counter& blocks_;
  prometheus::Counter& bytes_;
  prometheus::Histogram& seconds_;
  prometheus::Gauge& running_;
  prometheus::Counter& served_ok_;
  prometheus::Counter& served_missed_;
  prometheus::Counter& served_cancelled_;
  prometheus::Counter& served_refused_;
  prometheus::Counter& served_failed_;
  prometheus::Counter& served_blocks_;
  prometheus::Counter& served_bytes_;
  prometheus::Gauge& serving_;
};

}  // namespace baton::fetch
