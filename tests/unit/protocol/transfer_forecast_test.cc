#include "protocol/forecast/transfer_forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace baton::forecast {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

double Seconds(const TransferForecast::Rate& rate, int64_t bytes) {
  return rate.base + static_cast<double>(bytes) / rate.bytes_per_second;
}

TEST(TransferForecastTest, TellsPeersApartAndTheCallFromTheBytes) {
  TransferForecast forecast;
  for (int i = 1; i <= 12; ++i) {
    const int64_t bytes = i * 40 * kMiB;
    forecast.Observe("near", bytes, 2e-3 + static_cast<double>(bytes) / 100e9);
    forecast.Observe("far", bytes, 8e-3 + static_cast<double>(bytes) / 2e9);
  }
  const auto rates = forecast.rates();
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_EQ(rates[0].peer, "far");
  EXPECT_EQ(rates[1].peer, "near");
  EXPECT_NEAR(rates[0].bytes_per_second, 2e9, 0.3e9);
  for (const int64_t bytes : {kMiB, 100 * kMiB, 1000 * kMiB}) {
    const double truth = 8e-3 + static_cast<double>(bytes) / 2e9;
    EXPECT_NEAR(Seconds(rates[0], bytes), truth, 0.3 * truth) << bytes;
    EXPECT_LT(Seconds(rates[1], bytes), 0.5 * Seconds(rates[0], bytes)) << bytes;
  }
}

// A watcher is told when something is new, not after each transfer.
TEST(TransferForecastTest, IsNewsOnce) {
  TransferForecast forecast;
  EXPECT_FALSE(forecast.TakeNews().has_value());
  forecast.Observe("a", 100 * kMiB, 20e-3);
  ASSERT_TRUE(forecast.TakeNews().has_value());
  EXPECT_FALSE(forecast.TakeNews().has_value());
  for (int i = 0; i < 20; ++i) forecast.Observe("a", 100 * kMiB, 20e-3);
  EXPECT_FALSE(forecast.TakeNews().has_value()) << "as before";
  // The link has become ten times slower.
  for (int i = 0; i < 3; ++i) forecast.Observe("a", 100 * kMiB, 200e-3);
  const auto news = forecast.TakeNews();
  ASSERT_TRUE(news.has_value());
  EXPECT_NEAR(Seconds(news->front(), 100 * kMiB), 200e-3, 60e-3);
  forecast.Observe("b", kMiB, 5e-3);
  EXPECT_EQ(forecast.TakeNews()->size(), 2u) << "all of them are told";
}

TEST(TransferForecastTest, HiddenTransfersAreFastAndFinite) {
  TransferForecast forecast;
  for (int i = 0; i < 10; ++i) forecast.Observe("a", 1000 * kMiB, -0.5);
  const auto rates = forecast.rates();
  EXPECT_TRUE(std::isfinite(rates[0].bytes_per_second));
  EXPECT_GT(rates[0].bytes_per_second, 100e9);
  EXPECT_GE(rates[0].base, 0);
}

TEST(TransferForecastTest, LearnsNothingFromNothing) {
  TransferForecast forecast;
  forecast.Observe("a", 0, 1);
  forecast.Observe("a", -5, 1);
  forecast.Observe("a", 100, std::numeric_limits<double>::quiet_NaN());
  forecast.Observe("a", 100, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(forecast.rates().empty());
}

TEST(TransferForecastTest, ForgetsThePeerOfTheOldestTransfer) {
  TransferForecast forecast;
  for (size_t i = 0; i < TransferForecast::kMaxPeers; ++i) {
    forecast.Observe("p" + std::to_string(i), kMiB, 1e-2);
  }
  forecast.Observe("p0", kMiB, 1e-2);
  forecast.Observe("new", kMiB, 1e-2);
  const auto rates = forecast.rates();
  EXPECT_EQ(rates.size(), TransferForecast::kMaxPeers);
  const auto knows = [&](const std::string& peer) {
    for (const auto& rate : rates) {
      if (rate.peer == peer) return true;
    }
    return false;
  };
  EXPECT_TRUE(knows("p0"));
  EXPECT_TRUE(knows("new"));
  EXPECT_FALSE(knows("p1"));
}

}  // namespace
}  // namespace baton::forecast
