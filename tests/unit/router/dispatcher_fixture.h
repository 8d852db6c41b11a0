// What the tests of the dispatcher share: a fleet of two decode workers, and what was answered to whom.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/telemetry/metrics.h"
#include "router/dispatcher.h"

namespace baton::router {

class DispatcherTest : public ::testing::Test {
 protected:
  static Dispatcher::Options Options() {
    Dispatcher::Options options;
    options.limits = {.entries = 4, .bytes = 1000};
    options.worker_concurrency = 2;
    options.max_wait = absl::Seconds(60);
    options.settle_patience = absl::Seconds(3);
    return options;
  }

  void Up(int seat, uint64_t total_blocks = 1000) {
    v1::WatchEvent event;
    event.set_sequence(1);
    v1::WorkerInfo* info = event.mutable_snapshot()->mutable_info();
    info->set_worker_id("d" + std::to_string(seat));
    info->set_role(v1::ROLE_DECODE);
    info->set_incarnation(seat + 1);
    event.mutable_snapshot()->mutable_load()->set_total_blocks(total_blocks);
    BATON_CHECK(fleet_.OnEvent(seat, event).ok());
  }

  std::shared_ptr<Dispatcher::Ask> Ask(int name, int choices = 1, int64_t tokens = 10) {
    auto ask = std::make_shared<Dispatcher::Ask>();
    ask->choices = choices;
    ask->request.prompt_tokens = tokens;
    ask->request.max_tokens = 1;
    ask->bytes = 10;
    ask->result = [this, name](int choice, absl::StatusOr<Placement> result) {
      order_.push_back(name);
      results_[name].push_back(std::move(result));
    };
    return ask;
  }

  FakeClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{&metrics_};
  fleet::Fleet fleet_{{.router_id = "me",
                       .seats = {{"d0:1", fleet::Role::kDecode}, {"d1:1", fleet::Role::kDecode}},
                       .vocabulary = 0},
                      &probe_};
  std::map<int, std::vector<absl::StatusOr<Placement>>> results_;
  std::vector<int> order_;
  Dispatcher dispatcher_{Options(), &fleet_, *placement::MakePolicy("least_loaded", 1), &clock_, &probe_};
};

}  // namespace baton::router
