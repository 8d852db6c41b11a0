// StoreProbe: the metrics of the store that routers share, as verbs. Any thread.
#pragma once

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"

namespace baton::router::store {

class StoreProbe {
 public:
  explicit StoreProbe(telemetry::Metrics& metrics);

  // The store has answered after so long, or has not.
  void Answered(absl::Duration took);
  void Failed();
  // Routers that share limits by it, this one included.
  void Routers(int64_t routers) { routers_.Set(static_cast<double>(routers)); }

 private:
  prometheus::Gauge& up_;
  prometheus::Counter& failures_;
  prometheus::Histogram& seconds_;
  prometheus::Gauge& routers_;
};

}  // namespace baton::router::store
