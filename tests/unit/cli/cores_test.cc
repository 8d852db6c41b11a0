#include "cli/serve/cores.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

TEST(CoresTest, PrefillAndDecodeHaveThreadsForCoresOfTheirOwn) {
  const ThreadShares two = SplitCores(2, 1, 1);
  EXPECT_EQ(two.prefill, 1);
  EXPECT_EQ(two.decode, 1);
  const ThreadShares eight = SplitCores(8, 1, 3);
  EXPECT_EQ(eight.prefill, 2);
  EXPECT_EQ(eight.decode, 2);
  EXPECT_EQ(SplitCores(3, 1, 1).prefill, 2) << "the one that is left over";
}

TEST(CoresTest, NoMoreThreadsThanCoresWhereThereAreEnough) {
  for (int cores = 1; cores <= 24; ++cores) {
    for (int prefill = 1; prefill <= 5; ++prefill) {
      for (int decode = 1; decode <= 5; ++decode) {
        const ThreadShares shares = SplitCores(cores, prefill, decode);
        ASSERT_GE(shares.prefill, 1);
        ASSERT_GE(shares.decode, 1);
        if (cores >= 2 * (prefill + decode)) {
          EXPECT_LE(shares.prefill * prefill + shares.decode * decode, cores);
        }
      }
    }
  }
}

TEST(CoresTest, WithoutPrefillWorkersDecodeWorkersHaveThemAll) {
  EXPECT_EQ(SplitCores(4, 0, 2).decode, 2);
  EXPECT_EQ(SplitCores(1, 1, 1).decode, 1);
}

TEST(CoresTest, HomesAreApartWhereThereAreEnoughCores) {
  using device::CoreHome;
  EXPECT_EQ(HomesOf(2, 1, 1), (std::vector<CoreHome>{{0, 1, false}, {1, 1, true}}));
  EXPECT_EQ(HomesOf(8, 1, 3),
            (std::vector<CoreHome>{{0, 2, false}, {2, 2, true}, {4, 2, true}, {6, 2, true}}));
  EXPECT_EQ(HomesOf(2, 1, 2), (std::vector<CoreHome>{{0, 1, false}, {1, 1, true}, {1, 1, true}}))
      << "workers of one role own the same core";
  EXPECT_EQ(HomesOf(4, 0, 2), (std::vector<CoreHome>{{0, 2, true}, {2, 2, true}}));
  EXPECT_EQ(HomesOf(1, 1, 1), (std::vector<CoreHome>{{0, 1, false}, {0, 1, true}}));
}

TEST(CoresTest, HomesAreAsLargeAsShares) {
  for (int cores = 1; cores <= 24; ++cores) {
    for (int prefill = 0; prefill <= 5; ++prefill) {
      for (int decode = 1; decode <= 5; ++decode) {
        const ThreadShares shares = SplitCores(cores, prefill, decode);
        const std::vector<device::CoreHome> homes = HomesOf(cores, prefill, decode);
        ASSERT_EQ(std::ssize(homes), prefill + decode);
        for (int w = 0; w < prefill + decode; ++w) {
          const device::CoreHome& home = homes[static_cast<size_t>(w)];
          ASSERT_EQ(home.urgent, w >= prefill);
          ASSERT_EQ(home.count, w < prefill ? shares.prefill : shares.decode);
          ASSERT_GE(home.first, 0);
          ASSERT_LE(home.first + home.count, cores);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::cli
