#include "router/metrics/vllm_metrics.h"

namespace baton::router {

VllmMetrics::VllmMetrics(telemetry::Metrics& metrics, const std::string& model)
    : waiting_(metrics.Gauge("vllm:num_requests_waiting",
                             "Requests that wait in this router or on a decode worker to be computed",
                             {{"model_name", model}})),
      running_(metrics.Gauge("vllm:num_requests_running", "Requests that decode workers compute",
                             {{"model_name", model}})),
      kv_usage_(metrics.Gauge("vllm:kv_cache_usage_perc",
                              "Share of the decode workers' KV blocks that requests use, 0 to 1",
                              {{"model_name", model}})),
      old_kv_usage_(metrics.Gauge("vllm:gpu_cache_usage_perc",
                                  "vllm:kv_cache_usage_perc under the name that it had before",
                                  {{"model_name", model}})) {}

void VllmMetrics::Show(const FleetLoad& load) {
  waiting_.Set(static_cast<double>(load.waiting));
  running_.Set(static_cast<double>(load.running));
  const double used = load.total_blocks > 0
                          ? static_cast<double>(load.held_blocks) / static_cast<double>(load.total_blocks)
                          : 0;
  kv_usage_.Set(used);
  old_kv_usage_.Set(used);
}

}  // namespace baton::router
