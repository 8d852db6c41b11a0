// The runs of a slab: sizes, neighbours, and that nothing is lost or given out twice.
#include "transfer/nccl/staging.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton::transfer {
namespace {

constexpr int64_t kStagingUnit = Staging::kUnit;

Staging MakeStaging(int64_t bytes) { return Staging(device::HostMemory().Allocate(bytes).value(), bytes); }

TEST(StagingTest, GivesWholeUnitsAndRefusesWhatDoesNotFit) {
  Staging staging = MakeStaging(4 * kStagingUnit);
  const auto one = staging.Take(1), two = staging.Take(kStagingUnit + 1);
  ASSERT_TRUE(one.has_value() && two.has_value());
  EXPECT_EQ(one->bytes, kStagingUnit);
  EXPECT_EQ(two->bytes, 2 * kStagingUnit);
  EXPECT_EQ(staging.in_use(), 3 * kStagingUnit);
  EXPECT_FALSE(staging.Take(2 * kStagingUnit).has_value());
  EXPECT_TRUE(staging.Take(kStagingUnit).has_value());
  EXPECT_FALSE(staging.Take(0).has_value()) << "even nothing takes a unit";
}

TEST(StagingTest, JoinsNeighboursInAnyOrder) {
  Staging staging = MakeStaging(3 * kStagingUnit);
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}}) {
    std::vector<Staging::Run> runs;
    for (int i = 0; i < 3; ++i) runs.push_back(staging.Take(kStagingUnit).value());
    for (int i : order) staging.GiveBack(runs[static_cast<size_t>(i)]);
    const auto whole = staging.Take(3 * kStagingUnit);
    ASSERT_TRUE(whole.has_value());
    staging.GiveBack(*whole);
  }
}

TEST(StagingTest, TheRunThatFitsBestIsTaken) {
  Staging staging = MakeStaging(8 * kStagingUnit);
  const auto first = staging.Take(3 * kStagingUnit), wall = staging.Take(kStagingUnit);
  staging.GiveBack(*first);  // free: 3 units, and 4 behind the wall
  EXPECT_EQ(staging.Take(2 * kStagingUnit)->data, first->data);
  EXPECT_TRUE(staging.Take(4 * kStagingUnit).has_value());
  (void)wall;
}

TEST(StagingTest, RandomTakesNeverOverlapAndAllComesBack) {
  constexpr uint32_t kStagingSeed = 5;
  std::mt19937 random(kStagingSeed);
  Staging staging = MakeStaging(100 * kStagingUnit);
  std::vector<Staging::Run> runs;
  int64_t sum = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const auto run = staging.Take(1 + random() % (10 * kStagingUnit));
      if (!run.has_value()) continue;
      for (const auto& other : runs) {
        ASSERT_TRUE(run->data + run->bytes <= other.data || other.data + other.bytes <= run->data)
            << "seed " << kStagingSeed << " step " << i;
      }
      sum += run->bytes;
      runs.push_back(*run);
    } else if (!runs.empty()) {
      std::swap(runs[random() % runs.size()], runs.back());
      sum -= runs.back().bytes;
      staging.GiveBack(runs.back());
      runs.pop_back();
    }
    ASSERT_EQ(staging.in_use(), sum);
  }
  for (const auto& run : runs) staging.GiveBack(run);
  EXPECT_TRUE(staging.Take(100 * kStagingUnit).has_value());
}

TEST(StagingDeathTest, GivingBackTwiceIsABug) {
  Staging staging = MakeStaging(8 * kStagingUnit);
  const auto run = staging.Take(1), other = staging.Take(1);
  staging.GiveBack(*run);
  EXPECT_DEATH(staging.GiveBack(*run), "twice");
  (void)other;
}

}  // namespace
}  // namespace baton::transfer
