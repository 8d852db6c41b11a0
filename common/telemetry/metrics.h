// Metrics: a process's Prometheus registry and the HTTP page that shows it. Rooms don't use it by hand: each
// has a probe class whose methods are verbs, built on the helpers here. Names start with baton_, units are
// base units. Any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton::telemetry {

class PageServer;

class Metrics {
 public:
  using Labels = prometheus::Labels;

  Metrics();

  // The same page, with these labels on everything that is declared by what is returned.
  Metrics With(const Labels& labels) const;

  // Each name is declared once per process; the same name with other labels is the same family.
  prometheus::Counter& Counter(const std::string& name, const std::string& help, const Labels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const prometheus::Histogram::BucketBoundaries& buckets,
                                   const Labels& labels = {});

  // The labels that With has added.
  const Labels& labels() const { return common_; }
  // The page as text, for tests.
  std::string Text() const;
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  Labels Add(Labels labels) const;

  std::shared_ptr<prometheus::Registry> registry_;
  Labels common_;
};

// Buckets in seconds. TTFT: 1 ms to 60 s. TPOT and ITL: 0.5 ms to 2 s. E2E: 10 ms to 10 min.
prometheus::Histogram::BucketBoundaries TtftBuckets();
prometheus::Histogram::BucketBoundaries PerTokenBuckets();
prometheus::Histogram::BucketBoundaries EndToEndBuckets();

// GET /metrics on an address of its own: the registry, and what the process reports about itself (process.h,
// certificate.h). Limits for clients: page_server.h.
class MetricsServer {
 public:
  // host:port, port 0 lets the system choose. `certificate`: the PEM file of this process's own, if it speaks
  // TLS; its end is shown. UNAVAILABLE if the address can't be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              const Metrics& metrics,
                                                              const std::string& certificate = "");
  ~MetricsServer();
  const std::string& address() const;

 private:
  explicit MetricsServer(std::unique_ptr<PageServer> server);
  const std::unique_ptr<PageServer> server_;
};

}  // namespace baton::telemetry
