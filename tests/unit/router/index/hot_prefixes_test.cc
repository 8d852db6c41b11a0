#include "router/index/hot_prefixes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "tests/seed.h"

namespace baton::router::index {
namespace {

kv::BlockHash Hash(uint64_t number) {
  std::array<char, kv::BlockHash::kBytes> bytes{};
  std::memcpy(bytes.data(), &number, sizeof(number));
  return kv::BlockHash::FromBytes({bytes.data(), bytes.size()});
}

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

TEST(HotPrefixesTest, NothingWasAskedFor) { EXPECT_TRUE(HotPrefixes().Top(8, kStart).empty()); }

TEST(HotPrefixesTest, ASteadyRateIsShownAsSuch) {
  HotPrefixes hot;
  absl::Time now = kStart;
  // Ten half-lives of 5 a second for one and 1 a second for another.
  for (int i = 0; i < 3000; ++i) {
    now += absl::Milliseconds(200);
    hot.Placed(Hash(1), 40, 3, now);
    if (i % 5 == 0) hot.Placed(Hash(2), 7, 2, now);
  }
  const auto top = hot.Top(8, now);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_NEAR(top[0].per_second, 5, 0.05);
  EXPECT_EQ(top[0].blocks, 40);
  EXPECT_EQ(top[0].holders, 3);
  EXPECT_NEAR(top[1].per_second, 1, 0.05);
  EXPECT_EQ(hot.Top(1, now).size(), 1u);
}

TEST(HotPrefixesTest, ItCoolsDown) {
  HotPrefixes hot;
  for (int i = 0; i < 1000; ++i) hot.Placed(Hash(1), 1, 1, kStart);
  const double at_once = hot.Top(1, kStart)[0].per_second;
  EXPECT_NEAR(hot.Top(1, kStart + HotPrefixes::kHalfLife)[0].per_second, at_once / 2, at_once * 1e-6);
  // And after a silence longer than any number could count, the next one is hot at once.
  const absl::Time later = kStart + absl::Hours(100'000);
  hot.Placed(Hash(2), 9, 1, later);
  EXPECT_EQ(hot.Top(1, later)[0].blocks, 9);
  EXPECT_GT(hot.Top(1, later)[0].per_second, 0);
}

TEST(HotPrefixesTest, TheHotOnesStandOutOfAnyNumberOfColdOnes) {
  const auto seed = static_cast<uint32_t>(TestSeed());
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  HotPrefixes hot;
  absl::Time now = kStart;
  constexpr int kPlacements = 40'000;
  // A tenth each to three prefixes, the rest to conversations that nobody repeats.
  std::array<int, 3> asked{};
  for (int i = 0; i < kPlacements; ++i) {
    now += absl::Milliseconds(5);
    const uint64_t which = random() % 10;
    if (which < 3) {
      ++asked[which];
      hot.Placed(Hash(which), static_cast<int64_t>(which) + 100, 1, now);
    } else {
      hot.Placed(Hash(1000 + static_cast<uint64_t>(i)), 1, 1, now);
    }
  }
  const auto top = hot.Top(8, now);
  ASSERT_GE(top.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(top[i].blocks, 100) << "rank " << i + 1;
    // 20 placements a second each; at most what is counted for the cold ones is missing.
    EXPECT_GT(top[i].per_second, 15) << "rank " << i + 1;
    EXPECT_LT(top[i].per_second, 25) << "rank " << i + 1;
  }
  EXPECT_LT(top[3].per_second, 1) << "one that nobody repeated";
}

}  // namespace
}  // namespace baton::router::index
