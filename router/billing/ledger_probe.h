// LedgerProbe: the metrics of the ledger, as verbs. Any thread.
#pragma once

#include <cstdint>

#include "common/telemetry/metrics.h"

namespace baton::router::billing {

class LedgerProbe {
 public:
  explicit LedgerProbe(telemetry::Metrics& metrics);

  // Requests whose sums were written.
  void Written(int64_t requests) { written_.Increment(static_cast<double>(requests)); }
  // The disk refused the last write or hangs; and the number of requests whose sums wait for it.
  void Failing(bool failing) { failing_.Set(failing ? 1 : 0); }
  void Unwritten(int64_t requests) { unwritten_.Set(static_cast<double>(requests)); }
  // Audit lines that nothing was left to keep in.
  void LinesLost(int64_t lines) { lines_lost_.Increment(static_cast<double>(lines)); }

 private:
  prometheus::Counter& written_;
  prometheus::Gauge& failing_;
  prometheus::Gauge& unwritten_;
  prometheus::Counter& lines_lost_;
};

}  // namespace baton::router::billing
