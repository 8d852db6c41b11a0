// VllmMetrics: how busy a fleet is, under the names that vLLM gives its own load. Gateways of the Kubernetes
// Gateway API inference extension, and autoscalers made for vLLM, ask for these (docs/inference-gateway.md).
// Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/telemetry/metrics.h"

namespace baton::router {

// A fleet's load, with requests waiting in this router.
struct FleetLoad {
  int64_t waiting = 0;  // requests without a place in a batch
  int64_t running = 0;
  int64_t held_blocks = 0;  // KV blocks of the decode workers that requests use
  int64_t total_blocks = 0;
};

class VllmMetrics {
 public:
  // `model`: the value of the label `model_name`.
  VllmMetrics(telemetry::Metrics& metrics, const std::string& model);

  void Show(const FleetLoad& load);

 private:
  prometheus::Gauge& waiting_;
  prometheus::Gauge& running_;
  prometheus::Gauge& kv_usage_;
  prometheus::Gauge& old_kv_usage_;  // under the name that it had before
};

}  // namespace baton::router
