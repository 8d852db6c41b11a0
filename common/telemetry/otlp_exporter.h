// OtlpExporter: sends spans to a collector by OTLP over HTTP with JSON, in batches, on a thread of its own.
// No request waits for it: what doesn't fit into the bounded queue is dropped, and what a collector does not
// take after some tries, too. A metric counts both, and the log says once that the collector is away and once
// that it is back. The destructor sends what is left within a bound; a name that DNS doesn't answer for may
// take longer. Speaks to http:// alone: a collector with TLS is reached through one on the node.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "common/telemetry/otlp_json.h"
#include "common/telemetry/span.h"

namespace baton::telemetry {

// Where a collector listens: /v1/traces below its base URL.
struct OtlpEndpoint {
  std::string host, port, path;
};
// http://HOST[:PORT][/PATH]; the port is 4318 unless it says another. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(std::string_view url);

struct OtlpExporterOptions {
  std::string url;
  Resource resource;
  // Spans that may wait, and that leave in one request.
  size_t max_queued = 16384;
  size_t max_batch = 512;
  // A batch leaves when it is full, or when its first span has waited for so long.
  absl::Duration delay = absl::Seconds(1);
  // Until the collector has answered.
  absl::Duration timeout = absl::Seconds(5);
  // How often a batch is sent before it is dropped, and the first pause between two tries, which doubles.
  int tries = 4;
  absl::Duration retry_delay = absl::Milliseconds(200);
  // Time that the destructor may take.
  absl::Duration flush = absl::Seconds(2);
};

class OtlpExporter {
 public:
  // INVALID_ARGUMENT: the URL. Whether anybody listens there is not asked. `metrics` outlives it.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Start(OtlpExporterOptions options, Metrics& metrics);
  ~OtlpExporter();

  // Any thread; does not wait.
  void Add(std::vector<Span> spans);

 private:
  class Impl;
  explicit OtlpExporter(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::telemetry
