#include "worker/expert_probe.h"

namespace baton::worker {
namespace {

prometheus::Counter& UsesOf(telemetry::Metrics& metrics, const char* result) {
  return metrics.Counter("baton_expert_uses_total",
                         "Experts that a step's layer computed with, by whether they were in memory (hit) or "
                         "had to be read (miss).",
                         {{"result", result}});
}

}  // namespace

ExpertProbe::ExpertProbe(telemetry::Metrics& metrics, const model::ExpertStore& store)
    : store_(store),
      hits_(UsesOf(metrics, "hit")),
      misses_(UsesOf(metrics, "miss")),
      read_bytes_(metrics.Counter("baton_expert_read_bytes_total",
                                  "Bytes read of the file of experts, the start's included.")),
      read_seconds_(metrics.Counter("baton_expert_read_seconds_total",
                                    "Seconds during which experts that a step lacked were read.")),
      retries_(
          metrics.Counter("baton_expert_read_retries_total",
                          "Reads of an expert that failed or gave a wrong checksum, and were repeated.")),
      stall_seconds_(metrics.Counter("baton_expert_stall_seconds_total",
                                     "Seconds that steps waited for experts to be read.")),
      resident_(metrics.Gauge("baton_expert_resident", "Experts of all layers that are in memory.")),
      resident_bytes_(
          metrics.Gauge("baton_expert_resident_bytes", "Memory of experts that --expert-memory bounds.")) {
  metrics.Gauge("baton_expert_stored", "Experts of all layers in the file of experts.")
      .Set(static_cast<double>(store.experts()));
}

void ExpertProbe::Observe() {
  const model::ExpertStore::Stats now = store_.stats();
  const auto add = [](prometheus::Counter& counter, auto now, auto before) {
    if (now > before) counter.Increment(static_cast<double>(now - before));
  };
  add(hits_, now.hits, told_.hits);
  add(misses_, now.misses, told_.misses);
  add(read_bytes_, now.bytes_read, told_.bytes_read);
  add(read_seconds_, now.read_seconds, told_.read_seconds);
  add(retries_, now.retries, told_.retries);
  add(stall_seconds_, now.stall_seconds, told_.stall_seconds);
  resident_.Set(static_cast<double>(now.resident));
  resident_bytes_.Set(static_cast<double>(now.resident_bytes));
  told_ = now;
}

}  // namespace baton::worker
