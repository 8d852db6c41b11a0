#include "gateway/probe.h"

namespace baton::gateway {

void Probe::Answered(const std::string& endpoint, int status, absl::Duration took) {
  metrics_
      .Counter("baton_gateway_requests_total", "Requests that have ended, by endpoint and HTTP status",
               {{"endpoint", endpoint}, {"status", std::to_string(status)}})
      .Increment();
  metrics_
      .Histogram("baton_gateway_request_seconds", "From a request's last byte to the end of its answer",
                 telemetry::EndToEndBuckets(), {{"endpoint", endpoint}})
      .Observe(absl::ToDoubleSeconds(took));
}

void Probe::Ignored(size_t members) {
  if (members == 0) return;
  metrics_
      .Counter("baton_gateway_ignored_fields_total",
               "Members of requests that are not known here and had no effect")
      .Increment(static_cast<double>(members));
}

void Probe::Streams(int change) {
  metrics_.Gauge("baton_gateway_answers", "Answers under way").Increment(change);
}

}  // namespace baton::gateway
