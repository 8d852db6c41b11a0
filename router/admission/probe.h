// Probe: the metrics of admission, by tenant. The number of label values is bounded: tenants beyond the ones
// that were given a label of their own share "other". Under its owner's lock.
#pragma once

#include <array>
#include <string>

#include "absl/container/node_hash_map.h"
#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "router/admission/meter.h"
#include "router/admission/queue.h"
#include "router/admission/refusal.h"
#include "router/admission/tenant_limits.h"

namespace baton::router::admission {

class Probe {
 public:
  explicit Probe(telemetry::Metrics& metrics) : metrics_(metrics) {}

  // Before anything else about the tenant. The first label of a tenant stays.
  void Name(TenantId tenant, const std::string& label);
  void Admitted(TenantId tenant);
  void Refused(TenantId tenant, Reason reason);
  // A choice went to a worker.
  void Waited(TenantId tenant, absl::Duration wait);
  // A request ended.
  void Used(TenantId tenant, const Meter::Use& use);
  void Depth(TenantId tenant, const Queue::Depth& depth, int64_t running);
  // Nothing for those under "other": a share of several limits has no meaning.
  void Left(TenantId tenant, const Meter::Left& left);

 private:
  struct Series {
    explicit Series(telemetry::Metrics& metrics, const std::string& label);
    prometheus::Counter& admitted;
    std::array<prometheus::Counter*, kReasons> refused;
    prometheus::Histogram& wait;
    prometheus::Counter& prompt_tokens;
    prometheus::Counter& output_tokens;
    prometheus::Gauge& queued_requests;
    prometheus::Gauge& queued_tokens;
    prometheus::Gauge& running;
  };
  struct Tenant {
    Series* series = nullptr;
    std::string label;
    bool own = false;
    // Values last added to the gauges, which several tenants may share.
    Queue::Depth depth;
    int64_t running = 0;
    // By limit; made when first set.
    std::array<prometheus::Gauge*, 4> left{};
  };

  telemetry::Metrics& metrics_;
  absl::node_hash_map<std::string, Series> series_;
  absl::node_hash_map<TenantId, Tenant> tenants_;
};

}  // namespace baton::router::admission
