#include "cli/serve/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoresTest, PrefillAndDecodeComputeOnCoresOfTheirOwn) {
  const CoreShares two = SplitCores({0, 1}, 2, 1, 1);
  EXPECT_THAT(two.prefill.cpus, ElementsAre(0));
  EXPECT_THAT(two.decode.cpus, ElementsAre(1));
  EXPECT_EQ(two.prefill.threads, 1);
  EXPECT_EQ(two.decode.threads, 1);
  const CoreShares eight = SplitCores({0, 4, 1, 5, 2, 6, 3, 7}, 8, 1, 3);
  EXPECT_THAT(eight.prefill.cpus, ElementsAre(0, 4)) << "a whole core";
  EXPECT_THAT(eight.decode.cpus, ElementsAre(1, 5, 2, 6, 3, 7));
  EXPECT_EQ(eight.prefill.threads, 2);
  EXPECT_EQ(eight.decode.threads, 2);
}

TEST(CoresTest, EachCoreIsSomebodysAndNobodyIsWithout) {
  for (int cores = 2; cores <= 24; ++cores) {
    std::vector<int> cpus(cores);
    for (int i = 0; i < cores; ++i) cpus[i] = i;
    for (int prefill = 1; prefill <= 5; ++prefill) {
      for (int decode = 1; decode <= 5; ++decode) {
        const CoreShares shares = SplitCores(cpus, cores, prefill, decode);
        ASSERT_GE(shares.prefill.cpus.size(), 1u);
        ASSERT_GE(shares.decode.cpus.size(), 1u);
        std::vector<int> all = shares.prefill.cpus;
        all.insert(all.end(), shares.decode.cpus.begin(), shares.decode.cpus.end());
        EXPECT_EQ(all, cpus);
        EXPECT_GE(shares.prefill.threads, 1);
        EXPECT_GE(shares.decode.threads, 1);
        if (shares.decode.threads > 1)
          EXPECT_LE(shares.decode.threads * decode, std::ssize(shares.decode.cpus));
      }
    }
  }
}

TEST(CoresTest, WithoutPrefillWorkersOrCoresToSplitNobodyIsBound) {
  const CoreShares alone = SplitCores({0, 1, 2, 3}, 4, 0, 2);
  EXPECT_THAT(alone.decode.cpus, IsEmpty());
  EXPECT_EQ(alone.decode.threads, 2);
  const CoreShares one = SplitCores({0}, 1, 1, 1);
  EXPECT_THAT(one.decode.cpus, IsEmpty());
  EXPECT_THAT(one.prefill.cpus, IsEmpty());
  // A quota of 4 out of 64 cores that other containers have too.
  std::vector<int> many(64);
  const CoreShares quota = SplitCores(many, 4, 1, 1);
  EXPECT_THAT(quota.prefill.cpus, IsEmpty());
  EXPECT_EQ(quota.prefill.threads, 2);
  EXPECT_EQ(quota.decode.threads, 2);
}

TEST(CoresTest, ThisProcessHasSome) { EXPECT_FALSE(OwnCpus().empty()); }

}  // namespace
}  // namespace baton::cli
