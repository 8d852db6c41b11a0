// Probe: what a worker measures of fetches, on both ends, as verbs. FetchProbe: the end that fetches, from
// peers or from a tier of its own. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"

namespace baton::fetch {

// The name of a metric for a tier (kDiskName or kSharedName); and the disk's help, with the tier's name in
// the place of "disk".
const char* NameOf(std::string_view tier, const char* disk, const char* shared);
std::string HelpOf(const char* tier, const char* help);

class FetchProbe {
 public:
  // From peers, over this link.
  FetchProbe(telemetry::Metrics& metrics, std::string_view link);
  // From a tier: kDiskName or kSharedName (disk_source.h), which its metrics are named by.
  struct Tier {
    const char* name;
  };
  explicit FetchProbe(telemetry::Metrics& metrics, Tier tier = Tier{"disk"});

  enum class Outcome { kComplete, kPartial, kMissed, kGivenUp, kRefused, kFailed };
  void Began();
  void Ended(Outcome outcome, int64_t blocks, int64_t bytes, absl::Duration took);

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
};

class Probe : public FetchProbe {
 public:
  Probe(telemetry::Metrics& metrics, std::string_view link);

  // Outcomes of peers' fetches from here.
  enum class Served { kOk, kMissed, kCancelled, kRefused, kFailed };
  void Serve(Served outcome, int64_t blocks, int64_t bytes);
  void Serving(size_t now);

 private:
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
