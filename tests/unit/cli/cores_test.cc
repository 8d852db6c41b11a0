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

}  // namespace
}  // namespace baton::cli
