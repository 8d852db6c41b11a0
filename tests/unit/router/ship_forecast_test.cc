#include "router/placement/ship_forecast.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::router::placement {
namespace {

constexpr double kAnywhere = 0.4;
constexpr int64_t kTokens = 1000;

WorkerState Prefiller(uint64_t key, uint64_t domain) {
  WorkerState state;
  state.slot = WorkerSlot(static_cast<uint32_t>(key));
  state.key = key;
  state.link_domain = domain;
  return state;
}

class ShipForecastTest : public ::testing::Test {
 protected:
  double Seconds(size_t at) {
    return ShipForecast(decode_, prefill_).Seconds(prefill_[at], kTokens, kAnywhere).value_or(-1);
  }
  void Told(std::vector<PeerCost> costs) {
    costs_ = std::move(costs);
    decode_.peer_costs = costs_;
  }

  // Two in the first domain, two in the second.
  std::vector<WorkerState> prefill_ = {Prefiller(1, 7), Prefiller(2, 7), Prefiller(3, 8), Prefiller(4, 8)};
  WorkerState decode_ = Prefiller(9, 7);
  std::vector<PeerCost> costs_;
};

TEST_F(ShipForecastTest, SaysNothingWhereNothingIsKnown) {
  decode_.link_domain = 0;
  const ShipForecast forecast(decode_, prefill_);
  EXPECT_TRUE(forecast.blind());
  EXPECT_FALSE(forecast.Seconds(prefill_[0], kTokens, kAnywhere).has_value());
  EXPECT_EQ(forecast.Least(kTokens, kAnywhere), kAnywhere);
}

TEST_F(ShipForecastTest, AWorkerWithoutADomainIsNearNobody) {
  prefill_[0].link_domain = 0;
  EXPECT_EQ(Seconds(0), -1);
  decode_.link_domain = 0;
  EXPECT_EQ(Seconds(0), -1) << "two that say nothing share nothing";
}

TEST_F(ShipForecastTest, PairsWithinADomainAreTakenToBeFaster) {
  EXPECT_DOUBLE_EQ(Seconds(0), ShipForecast::kNearShare * kAnywhere);
  EXPECT_DOUBLE_EQ(Seconds(2), kAnywhere);
  EXPECT_DOUBLE_EQ(ShipForecast(decode_, prefill_).Least(kTokens, kAnywhere),
                   ShipForecast::kNearShare * kAnywhere);
}

TEST_F(ShipForecastTest, WhatWasSeenOfAPairCountsMoreThanItsDomain) {
  Told({{.peer = 1, .base = 0.1, .token = 1e-3}, {.peer = 3, .base = 0.01, .token = 1e-5}});
  EXPECT_DOUBLE_EQ(Seconds(0), 1.1);
  EXPECT_DOUBLE_EQ(Seconds(2), 0.02);
  EXPECT_DOUBLE_EQ(ShipForecast(decode_, prefill_).Least(kTokens, kAnywhere), 0.02);
}

TEST_F(ShipForecastTest, APairThatWasNotSeenIsLikeThoseAsNear) {
  Told({{.peer = 1, .base = 0, .token = 1e-5}, {.peer = 3, .base = 0, .token = 1e-4}});
  EXPECT_DOUBLE_EQ(Seconds(1), 0.01);
  EXPECT_DOUBLE_EQ(Seconds(3), 0.1);
}

TEST_F(ShipForecastTest, NearPairsAreNeverTakenToBeSlowerThanFarOnes) {
  Told({{.peer = 3, .base = 0, .token = 1e-6}});
  EXPECT_DOUBLE_EQ(Seconds(0), 1e-3) << "the far pair is faster than a share of the assumption";
  Told({{.peer = 1, .base = 0, .token = 1e-3}});
  EXPECT_DOUBLE_EQ(Seconds(2), 1) << "the near pair is slower than the assumption";
}

TEST_F(ShipForecastTest, NothingIsShippedInNoTime) {
  EXPECT_EQ(ShipForecast(decode_, prefill_).Seconds(prefill_[2], 0, kAnywhere), 0);
}

}  // namespace
}  // namespace baton::router::placement
