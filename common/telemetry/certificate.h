// CertificateMetrics: when a process's own certificate ends. The file is read at each request for the metrics
// page, so that a renewed certificate shows at once. Any thread.
#pragma once

#include <prometheus/collectable.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::telemetry {

// The end of the first certificate of a PEM file. NOT_FOUND: no such file; INVALID_ARGUMENT: no certificate.
absl::StatusOr<absl::Time> CertificateEnd(const std::string& pem_file);

class CertificateMetrics final : public prometheus::Collectable {
 public:
  // Empty: a process without TLS, which shows nothing.
  explicit CertificateMetrics(std::string pem_file) : pem_file_(std::move(pem_file)) {}
  // A file that can't be read ends at 0: an alert, not a gap.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string pem_file_;
};

}  // namespace baton::telemetry
