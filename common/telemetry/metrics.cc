#include "common/telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>
#include <vector>

#include "common/telemetry/certificate.h"
#include "common/telemetry/page_server.h"
#include "common/telemetry/process.h"

namespace baton::telemetry {

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {}

Metrics Metrics::With(const Labels& labels) const {
  Metrics labelled = *this;
  labelled.common_.insert(labels.begin(), labels.end());
  return labelled;
}

Metrics::Labels Metrics::Add(Labels labels) const {
  labels.insert(common_.begin(), common_.end());
  return labels;
}

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(Add(labels));
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(Add(labels));
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const prometheus::Histogram::BucketBoundaries& buckets,
                                          const Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(Add(labels), buckets);
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
  PageServerOptions options;
  options.listen = listen;
  auto page = [registry = metrics.registry(), process = ProcessMetrics(),
               own = CertificateMetrics(certificate)] {
    std::vector<prometheus::MetricFamily> families = registry->Collect();
    for (std::vector<prometheus::MetricFamily> more : {process.Collect(), own.Collect()}) {
      std::move(more.begin(), more.end(), std::back_inserter(families));
    }
    return prometheus::TextSerializer().Serialize(families);
  };
  absl::StatusOr<std::unique_ptr<PageServer>> server = PageServer::Start(options, std::move(page));
  if (!server.ok()) return server.status();
  return std::unique_ptr<MetricsServer>(new MetricsServer(*std::move(server)));
}

MetricsServer::MetricsServer(std::unique_ptr<PageServer> server) : server_(std::move(server)) {}

MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::address() const { return server_->address(); }

}  // namespace baton::telemetry
