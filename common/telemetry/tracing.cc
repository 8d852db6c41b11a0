#include "common/telemetry/tracing.h"

#include <utility>

#include "common/telemetry/semantic_conventions.h"

namespace baton::telemetry {

absl::StatusOr<std::unique_ptr<Tracing>> Tracing::Start(const TracingOptions& options,
                                                        const std::string& service,
                                                        const std::string& instance, Metrics& metrics) {
  std::unique_ptr<OtlpExporter> exporter;
  if (!options.otlp.empty()) {
    OtlpExporterOptions exporting;
    exporting.url = options.otlp;
    exporting.resource = {{names::kServiceName, service},
                          {names::kServiceInstance, instance},
                          {names::kServiceVersion, BATON_VERSION}};
    absl::StatusOr<std::unique_ptr<OtlpExporter>> started =
        OtlpExporter::Start(std::move(exporting), metrics);
    if (!started.ok()) return started.status();
    exporter = *std::move(started);
  }
  return std::unique_ptr<Tracing>(new Tracing(std::move(exporter), options.sample));
}

Tracing::Tracing(std::unique_ptr<OtlpExporter> exporter, double sample)
    : exporter_(std::move(exporter)),
      tracer_(
          exporter_ == nullptr ? RequestSpans::Sink()
                               : [this](std::vector<Span> spans) { exporter_->Add(std::move(spans)); },
          sample) {}

}  // namespace baton::telemetry
