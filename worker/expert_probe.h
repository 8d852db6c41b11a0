// ExpertProbe: what a worker measures of experts outside memory. The engine thread's.
#pragma once

#include "common/telemetry/metrics.h"
#include "engine/model/expert_store.h"

namespace baton::worker {

class ExpertProbe {
 public:
  // Both outlive it.
  ExpertProbe(telemetry::Metrics& metrics, const model::ExpertStore& store);
  // Takes the store's counts since the last call, and its present content.
  void Observe();

 private:
  const model::ExpertStore& store_;
  prometheus::Counter& hits_;
  prometheus::Counter& misses_;
  prometheus::Counter& read_bytes_;
  prometheus::Counter& read_seconds_;
  prometheus::Counter& retries_;
  prometheus::Counter& stall_seconds_;
  prometheus::Gauge& resident_;
  prometheus::Gauge& resident_bytes_;
  model::ExpertStore::Stats told_;
};

}  // namespace baton::worker
