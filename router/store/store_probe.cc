#include "router/store/store_probe.h"

namespace baton::router::store {

StoreProbe::StoreProbe(telemetry::Metrics& metrics)
    : up_(metrics.Gauge("baton_router_store_up",
                        "1: the store that routers share limits by answers; 0: this router goes on with its "
                        "part of each limit")),
      failures_(metrics.Counter("baton_router_store_failures_total",
                                "Times that the store has not answered, or not as asked")),
      seconds_(metrics.Histogram("baton_router_store_seconds", "Seconds until the store has answered",
                                 {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5})),
      routers_(metrics.Gauge("baton_router_store_routers",
                             "Routers that share limits by the store, this one included")) {}

void StoreProbe::Answered(absl::Duration took) {
  up_.Set(1);
  seconds_.Observe(absl::ToDoubleSeconds(took));
}

void StoreProbe::Failed() {
  up_.Set(0);
  failures_.Increment();
}

}  // namespace baton::router::store
