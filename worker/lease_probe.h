// LeaseProbe: a worker's leases in its metrics, by TTL. The engine thread's.
#pragma once

#include <array>

#include "common/telemetry/metrics.h"
#include "engine/kv/index/block_pool.h"

namespace baton::worker {

class LeaseProbe {
 public:
  // `metrics` outlives it.
  explicit LeaseProbe(telemetry::Metrics& metrics);
  // Takes the pool's counts since the last call, and its present leases.
  void Observe(const kv::BlockPool& pool);

 private:
  struct Counters {
    prometheus::Counter& granted;
    prometheus::Counter& renewed;
    prometheus::Counter& expired_unused;
    prometheus::Counter& broken;
    kv::LeaseCounts counted;
  };
  static Counters CountersOf(telemetry::Metrics& metrics, const char* ttl);

  std::array<Counters, kv::kLeaseClasses> classes_;
  prometheus::Gauge& leased_blocks_;
};

}  // namespace baton::worker
