// A fleet of two decode workers, d0 and d1, as the router's tests have it: without connections.
#pragma once

#include <string>

#include "common/base/check.h"
#include "common/telemetry/metrics.h"
#include "router/fleet/fleet.h"
#include "router/metrics/probe.h"

namespace baton::router {

struct TwoDecodeWorkers {
  // Its first words: nothing runs, and so many KV blocks (0: it does not say).
  void Up(int endpoint, uint64_t total_blocks = 0) {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(1);
    baton::fleet::v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
    info->set_worker_id("d" + std::to_string(endpoint));
    info->set_role(baton::fleet::v1::ROLE_DECODE);
    info->set_incarnation(endpoint + 1);
    if (total_blocks > 0) event.mutable_snapshot()->mutable_load()->set_total_blocks(total_blocks);
    BATON_CHECK(fleet_.OnEvent(endpoint, event).ok());
  }

  telemetry::Metrics metrics_;
  Probe probe_{metrics_};
  fleet::Fleet fleet_{{.router_id = "me",
                       .endpoints = {{"d0:1", fleet::Role::kDecode}, {"d1:1", fleet::Role::kDecode}},
                       .vocabulary = 0},
                      probe_};
};

}  // namespace baton::router
