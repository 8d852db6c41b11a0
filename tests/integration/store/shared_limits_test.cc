// Limits that routers share, over a real server that is killed, stopped and emptied.
#include "router/store/shared_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "tests/integration/store/redis_server.h"
#include "tests/patience.h"

namespace baton::router::store {
namespace {

using admission::Meter;
using admission::Meters;
using admission::TenantId;
using admission::TenantLimits;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr TenantId kTenant{0};

// A router's part of it.
class Side {
 public:
  Side(const StoreOptions& store, const std::string& id, const TenantLimits& limits)
      : limits_({.store = store, .router_id = id}, meters_, clock_, probe_) {
    limits_.SetTenant(kTenant, "search");
    meters_->Configure(kTenant, limits, clock_.Now());
    limits_.Start();
  }

  bool Admit(const Meter::Use& use) {
    if (meters_->Check(kTenant, use, clock_.Now()).has_value()) return false;
    meters_->Charge(kTenant, use, clock_.Now());
    return true;
  }
  Meter::Left Left() { return meters_->LeftOver(kTenant, clock_.Now()); }
  std::string Page() const { return metrics_.Text(); }
  void AwaitPage(const std::string& line) {
    Await([&] { return Page().find(line + "\n") != std::string::npos; }, line);
    EXPECT_THAT(Page(), HasSubstr(line + "\n"));
  }
  void AwaitLeft(double least, double most) {
    Await([&] { return Left().requests >= least && Left().requests <= most; }, "what is left of the limit");
    EXPECT_THAT(Left().requests, AllOf(Ge(least), Le(most)));
  }
  Meters& meters() { return *meters_; }
  SharedLimits& limits() { return limits_; }

 private:
  telemetry::Metrics metrics_;
  StoreProbe probe_{metrics_};
  MonotonicClock clock_;
  std::shared_ptr<Meters> meters_ = std::make_shared<Meters>();
  SharedLimits limits_;
};

// So slow that nothing refills while a test runs.
constexpr TenantLimits kQuota = {.tokens_per_day = 86'400 * 5};
constexpr TenantLimits kRequests = {.requests_per_minute = 100};

TEST(SharedLimitsTest, WhatOneRouterUsesTheOthersLack) {
  RedisServer server;
  Side a(server.options(), "a", kRequests), b(server.options(), "b", kRequests);
  for (int i = 0; i < 90; ++i) EXPECT_TRUE(a.Admit({.requests = 1}));
  b.AwaitLeft(0, 0.3);
  for (int i = 0; i < 60; ++i) (void)b.Admit({.requests = 1});
  a.AwaitLeft(0, 0.2);
  a.AwaitPage("baton_router_store_up 1");
  a.AwaitPage("baton_router_store_routers 2");
}

TEST(SharedLimitsTest, SettlementsGiveBackEverywhere) {
  RedisServer server;
  Side a(server.options(), "a", kRequests), b(server.options(), "b", kRequests);
  for (int i = 0; i < 80; ++i) EXPECT_TRUE(a.Admit({.requests = 1}));
  b.AwaitLeft(0, 0.5);
  a.meters().Settle(kTenant, {.requests = 80}, {.requests = 1}, 1, MonotonicClock().Now());
  b.AwaitLeft(0.9, 1);
}

// Four routers that admit all that they can: beyond the limit goes what each admits until the store has
// answered, and it is paid back.
TEST(SharedLimitsTest, OverAllTheLimitHolds) {
  RedisServer server;
  constexpr int kRouters = 4;
  constexpr int kAsked = 3000;  // of each, which is twice the limit together, and none would refuse its own
  const TenantLimits limits = {.requests_per_minute = 6000};
  std::vector<std::unique_ptr<Side>> sides;
  for (int i = 0; i < kRouters; ++i) {
    sides.push_back(std::make_unique<Side>(server.options(), std::to_string(i), limits));
  }
  sides[0]->AwaitPage("baton_router_store_routers 4");
  std::atomic<int64_t> admitted = 0;
  const absl::Time begun = absl::Now();
  std::vector<std::thread> threads;
  for (const auto& side : sides) {
    threads.emplace_back([&admitted, one = side.get()] {
      for (int i = 0; i < kAsked; ++i) {
        if (one->Admit({.requests = 1})) ++admitted;
        absl::SleepFor(absl::Milliseconds(1));  // a caller's pace: 4,000 requests a second come in all
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double allowed = 6000 + 100 * absl::ToDoubleSeconds(absl::Now() - begun);
  EXPECT_GE(static_cast<double>(admitted), 0.9 * 6000);
  EXPECT_LE(static_cast<double>(admitted), 1.5 * allowed);
  sides[0]->AwaitLeft(0, 0.1);
}

TEST(SharedLimitsTest, ARouterThatStartsLaterAdoptsWhatIsLeft) {
  RedisServer server;
  Side a(server.options(), "a", kRequests);
  for (int i = 0; i < 95; ++i) EXPECT_TRUE(a.Admit({.requests = 1}));
  a.limits().SetTenant(TenantId{1}, "other");
  double left = 1;
  const auto adopts = [&] {
    Side b(server.options(), "b", kRequests);
    left = b.Left().requests;
    return left <= 0.5;
  };
  Await(adopts, "a router that adopts what is left");
  EXPECT_LT(left, 0.5);
}

TEST(SharedLimitsTest, WithoutTheStoreEachGoesOnWithItsPart) {
  RedisServer server;
  Side a(server.options(), "a", kQuota), b(server.options(), "b", kQuota);
  a.AwaitPage("baton_router_store_routers 2");
  b.AwaitPage("baton_router_store_routers 2");
  server.Signal(SIGKILL);
  server.AwaitEnd();
  a.AwaitPage("baton_router_store_up 0");
  b.AwaitPage("baton_router_store_up 0");
  const int64_t half = kQuota.tokens_per_day / 2;
  EXPECT_TRUE(a.Admit({.prompt_tokens = half - 100}));
  EXPECT_FALSE(a.Admit({.prompt_tokens = 2000}));
  EXPECT_TRUE(b.Admit({.prompt_tokens = half - 100}));
  EXPECT_FALSE(b.Admit({.prompt_tokens = 2000}));
  // Tokens that they used alone count when it is back.
  server.Start();
  a.AwaitPage("baton_router_store_up 1");
  b.AwaitPage("baton_router_store_up 1");
  Await([&] { return a.Left().quota <= 0.1 && b.Left().quota <= 0.1; }, "what both have used, at the store");
  EXPECT_LT(a.Left().quota, 0.1);
  EXPECT_LT(b.Left().quota, 0.1);
}

TEST(SharedLimitsTest, AServerThatHangsHoldsNoRequest) {
  RedisServer server;
  Side a(server.options(), "a", kRequests);
  server.Signal(SIGSTOP);
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += a.Admit({.requests = 1}) ? 1 : 0;
  EXPECT_EQ(admitted, 100);
  a.AwaitPage("baton_router_store_up 0");
  server.Signal(SIGCONT);
  a.AwaitPage("baton_router_store_up 1");
}

TEST(SharedLimitsTest, ARouterThatStartsWithoutTheStoreServes) {
  RedisServer server;
  server.Signal(SIGKILL);
  server.AwaitEnd();
  Side a(server.options(), "a", kRequests);
  EXPECT_TRUE(a.Admit({.requests = 1}));
  EXPECT_THAT(a.Page(), HasSubstr("baton_router_store_up 0\n"));
  server.Start();
  a.AwaitPage("baton_router_store_up 1");
}

TEST(SharedLimitsTest, APasswordIsNeededAndReadAgain) {
  RedisServer server({"--requirepass", "open-sesame"});
  StoreOptions options = server.options();
  EXPECT_TRUE(absl::IsPermissionDenied(Redis(options).Run(std::vector<std::string>{"GET", "x"}).status()));
  options.password_file = ::testing::TempDir() + "/store_password_test";
  std::ofstream(options.password_file) << "wrong";
  Redis redis(options);
  EXPECT_TRUE(absl::IsPermissionDenied(redis.Run(std::vector<std::string>{"PING"}).status()));
  std::ofstream(options.password_file) << "open-sesame\n";
  EXPECT_TRUE(redis.Run(std::vector<std::string>{"PING"}).ok())
      << redis.Run(std::vector<std::string>{"PING"}).status();
  std::filesystem::remove(options.password_file);
}

}  // namespace
}  // namespace baton::router::store
