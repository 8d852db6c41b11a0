// Tracing: a process's tracer, and the exporter behind it if a collector is named. One per process, before
// all that uses the tracer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/telemetry/metrics.h"
#include "common/telemetry/otlp_exporter.h"
#include "common/telemetry/tracer.h"

namespace baton::telemetry {

struct TracingOptions {
  // Base URL of a collector; empty: traces are handed on and not recorded here.
  std::string otlp;
  // See Tracer.
  double sample = 1;
};

class Tracing {
 public:
  // service: the kind of process, as "baton-router"; instance: which one of them. INVALID_ARGUMENT: the URL.
  // `metrics` outlives it.
  static absl::StatusOr<std::unique_ptr<Tracing>> Start(const TracingOptions& options,
                                                        const std::string& service,
                                                        const std::string& instance, Metrics& metrics);
  const Tracer& tracer() const { return tracer_; }

 private:
  Tracing(std::unique_ptr<OtlpExporter> exporter, double sample);

  const std::unique_ptr<OtlpExporter> exporter_;  // null: no collector is named
  const Tracer tracer_;
};

}  // namespace baton::telemetry
