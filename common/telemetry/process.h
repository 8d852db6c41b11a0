// ProcessMetrics: what every process reports about itself on its metrics page, under the names that
// Prometheus' own clients use: CPU seconds, resident memory, open files, start time, and which build it is;
// and how many lines of its log could not be written. They are read from /proc at each request. Any thread.
#pragma once

#include <prometheus/collectable.h>

#include <vector>

namespace baton::telemetry {

class ProcessMetrics final : public prometheus::Collectable {
 public:
  // Families that can't be read are left out.
  std::vector<prometheus::MetricFamily> Collect() const override;
};

// A line of the log was lost, because standard error did not accept it.
void CountLostLogLine();

}  // namespace baton::telemetry
