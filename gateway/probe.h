// Probe: what the gateway tells of itself. Any thread.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"

namespace baton::gateway {

class Probe {
 public:
  explicit Probe(telemetry::Metrics& metrics) : metrics_(metrics) {}

  // A request has its answer: by endpoint and HTTP status. 499: the client went away.
  void Answered(const std::string& endpoint, int status, absl::Duration took);
  // Members of requests that were ignored.
  void Ignored(size_t members);
  void Streams(int change);

 private:
  telemetry::Metrics& metrics_;
};

}  // namespace baton::gateway
