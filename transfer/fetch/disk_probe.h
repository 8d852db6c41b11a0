// DiskProbe: what a worker measures of a tier, its disk or what it shares with others, besides loads
// (FetchProbe), as verbs. Engine thread.
#pragma once

#include <array>

#include "common/telemetry/metrics.h"
#include "engine/kv/tier/disk_tier.h"

namespace baton::fetch {

class DiskProbe {
 public:
  // `tier`: kDiskName or kSharedName (disk_source.h), which its metrics are named by.
  explicit DiskProbe(telemetry::Metrics& metrics, const char* tier = "disk");

  // A cached block was not written: it is not worth it, or there is no room for it on its way.
  void NotWorthIt() { not_worth_it_.Increment(); }
  void NoRoom() { no_room_.Increment(); }
  // Takes the tier's counts since its start.
  void Observe(const kv::tier::DiskTier::Counts& counts);

 private:
  prometheus::Gauge& blocks_;
  prometheus::Gauge& bytes_;
  prometheus::Gauge& waiting_;
  prometheus::Counter& written_blocks_;
  prometheus::Counter& written_bytes_;
  prometheus::Counter& write_seconds_;
  prometheus::Counter& evicted_;
  prometheus::Counter& second_chances_;
  prometheus::Counter& not_worth_it_;
  prometheus::Counter& no_room_;
  prometheus::Counter& failing_;
  std::array<prometheus::Counter*, kv::tier::BlockStore::kFailures> failures_;
  kv::tier::DiskTier::Counts told_;
};

}  // namespace baton::fetch
