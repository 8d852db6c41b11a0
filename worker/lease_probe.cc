#include "worker/lease_probe.h"

#include <cstddef>

namespace baton::worker {

LeaseProbe::Counters LeaseProbe::CountersOf(telemetry::Metrics& metrics, const char* ttl) {
  const auto counter = [&](const char* event) -> prometheus::Counter& {
    return metrics.Counter(
        "baton_cache_lease_blocks_total",
        "KV blocks whose lease was granted, renewed by a prompt, ended unused, or was broken "
        "early because the room was needed, by TTL.",
        {{"event", event}, {"ttl", ttl}});
  };
  return {.granted = counter("granted"),
          .renewed = counter("renewed"),
          .expired_unused = counter("expired_unused"),
          .broken = counter("broken"),
          .counted = {}};
}

LeaseProbe::LeaseProbe(telemetry::Metrics& metrics)
    : classes_{CountersOf(metrics, "5m"), CountersOf(metrics, "1h")},
      leased_blocks_(metrics.Gauge("baton_kv_leased_blocks", "Cached KV blocks that are under a lease.")) {}

void LeaseProbe::Observe(const kv::BlockPool& pool) {
  for (size_t i = 0; i < classes_.size(); ++i) {
    Counters& counters = classes_[i];
    const kv::LeaseCounts& now = pool.lease_counts(static_cast<kv::LeaseClass>(i));
    if (now == counters.counted) continue;
    const auto add = [](prometheus::Counter& counter, int64_t now, int64_t before) {
      counter.Increment(static_cast<double>(now - before));
    };
    add(counters.granted, now.granted, counters.counted.granted);
    add(counters.renewed, now.renewed, counters.counted.renewed);
    add(counters.expired_unused, now.expired_unused, counters.counted.expired_unused);
    add(counters.broken, now.broken, counters.counted.broken);
    counters.counted = now;
  }
  leased_blocks_.Set(static_cast<double>(pool.counts().leased));
}

}  // namespace baton::worker
