#include "cli/serve/device_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using Shares = std::vector<std::vector<int>>;
using ::testing::HasSubstr;

TEST(DeviceSharesTest, DealsEachRoleItsOwn) {
  const auto shares = ShareDevices({0, 1}, {2, 3, 4, 5, 6, 7}, {1, 1}, {1, 1, 1, 1, 1, 1});
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_EQ(shares->prefill, Shares({{0}, {1}}));
  EXPECT_EQ(shares->decode, Shares({{2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_FALSE(shares->shared());
}

TEST(DeviceSharesTest, AWorkerHasOneForEachRankInTheOrderThatWasSaid) {
  const auto shares = ShareDevices({5, 1, 0, 4}, {2, 3}, {2, 2}, {2});
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_EQ(shares->prefill, Shares({{5, 1}, {0, 4}}));
  EXPECT_EQ(shares->decode, Shares({{2, 3}}));
}

TEST(DeviceSharesTest, UnlessAnyIsNamedTheyAreCountedFromZero) {
  const auto shares = ShareDevices({}, {}, {2}, {2, 2});
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_EQ(shares->prefill, Shares({{0, 1}}));
  EXPECT_EQ(shares->decode, Shares({{2, 3}, {4, 5}}));
  EXPECT_EQ(ShareDevices({}, {}, {}, {1})->decode, Shares({{0}}));
}

TEST(DeviceSharesTest, WorkersOfUnlikeModelsHaveAsManyAsTheirRanks) {
  const auto shares = ShareDevices({0, 1, 2}, {3, 4, 5}, {2, 1}, {2, 1});
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_EQ(shares->prefill, Shares({{0, 1}, {2}}));
  EXPECT_EQ(shares->decode, Shares({{3, 4}, {5}}));
  EXPECT_THAT(ShareDevices({0, 1}, {2}, {2, 1}, {1}).status().message(),
              HasSubstr("--prefill-devices names 2 GPU(s), and 2 prefill worker(s) take 3"));
}

TEST(DeviceSharesTest, TwoRolesMayShareAGpu) {
  const auto shares = ShareDevices({0}, {0}, {1}, {1});
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_TRUE(shares->shared());
}

TEST(DeviceSharesTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(ShareDevices({0, 1, 2}, {3}, {2}, {2}).status().message(),
              HasSubstr("--prefill-devices names 3 GPU(s), and 1 prefill worker(s) with --tp 2 take 2"));
  EXPECT_THAT(ShareDevices({0}, {}, {1}, {1}).status().message(),
              HasSubstr("--decode-devices names 0 GPU(s), and 1 decode worker(s) with --tp 1 take 1"));
  EXPECT_THAT(ShareDevices({}, {1}, {1}, {1}).status().message(),
              HasSubstr("--prefill-devices names 0 GPU(s)"));
  EXPECT_THAT(ShareDevices({0}, {1, 1}, {1}, {1, 1}).status().message(),
              HasSubstr("--decode-devices names GPU 1 twice"));
}

}  // namespace
}  // namespace baton::cli
