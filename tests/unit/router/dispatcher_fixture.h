// The fixture of the dispatcher's tests: a fleet of two decode workers, and each request's answers.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "router/dispatch/dispatcher.h"
#include "tests/unit/router/two_decode_workers.h"

namespace baton::router {

class DispatcherTest : public ::testing::Test, protected TwoDecodeWorkers {
 protected:
  static Dispatcher::Options Options() {
    Dispatcher::Options options;
    options.limits = {.entries = 4, .bytes = 1000};
    options.worker_concurrency = 2;
    options.max_wait = absl::Seconds(60);
    options.settle_patience = absl::Seconds(3);
    return options;
  }

  void Up(int endpoint, uint64_t total_blocks = 1000) { TwoDecodeWorkers::Up(endpoint, total_blocks); }

  std::shared_ptr<DispatchRequest> MakeRequest(int name, int choices = 1, int64_t tokens = 10) {
    auto request = std::make_shared<DispatchRequest>();
    request->choices = choices;
    request->prompt_tokens = tokens;
    request->max_tokens = 1;
    request->bytes = 10;
    request->result = [this, name](int choice, absl::StatusOr<Placement> result) {
      order_.push_back(name);
      results_[name].push_back(std::move(result));
    };
    return request;
  }

  FakeClock clock_;
  std::map<int, std::vector<absl::StatusOr<Placement>>> results_;
  std::vector<int> order_;
  Dispatcher dispatcher_{Options(), fleet_, *placement::MakePolicy("least_loaded", 1), clock_, probe_};
};

}  // namespace baton::router
