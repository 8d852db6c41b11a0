#include "common/telemetry/metrics.h"

#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/telemetry/certificate.h"
#include "common/telemetry/process.h"

namespace baton::telemetry {

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {}

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const prometheus::Histogram::BucketBoundaries& buckets,
                                          const Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(labels, buckets);
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

prometheus::Histogram::BucketBoundaries TtftBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75,
          1,     1.5,    2,     3,    5,     7.5,  10,  20,   30,  60};
}

prometheus::Histogram::BucketBoundaries PerTokenBuckets() {
  return {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
          0.04,   0.05,  0.075,  0.1,   0.2,    0.5,  1,     2};
}

prometheus::Histogram::BucketBoundaries EndToEndBuckets() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600};
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    const Metrics& metrics,
                                                                    const std::string& certificate) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("metrics address \"", listen, "\": use host:port"));
  }
  try {  // the library's HTTP server reports a taken port by an exception
    auto exposer = std::make_unique<prometheus::Exposer>(listen);
    exposer->RegisterCollectable(metrics.registry());
    std::vector<std::shared_ptr<prometheus::Collectable>> own = {
        std::make_shared<ProcessMetrics>(), std::make_shared<CertificateMetrics>(certificate)};
    for (const auto& one : own) exposer->RegisterCollectable(one);
    std::string address = absl::StrCat(listen.substr(0, colon), ":", exposer->GetListeningPorts().front());
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::move(own), std::move(exposer), std::move(address)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("can't serve metrics on ", listen, ": ", error.what()));
  }
}

MetricsServer::MetricsServer(std::vector<std::shared_ptr<prometheus::Collectable>> own,
                             std::unique_ptr<prometheus::Exposer> exposer, std::string address)
    : own_(std::move(own)), exposer_(std::move(exposer)), address_(std::move(address)) {}

MetricsServer::~MetricsServer() = default;

}  // namespace baton::telemetry
