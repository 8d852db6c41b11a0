#include "engine/rank_threads.h"

#include <gtest/gtest.h>

#include <barrier>
#include <random>
#include <vector>

#include "engine/kernels/collective.h"

namespace baton::engine {
namespace {

TEST(RankThreadsTest, RunsAllRanksAtTheSameTimeEveryRound) {
  for (int ranks : {1, 2, 5}) {
    RankThreads threads(ranks);
    ASSERT_EQ(threads.ranks(), ranks);
    std::barrier barrier(ranks);
    std::vector<int> rounds(static_cast<size_t>(ranks));
    std::vector<std::thread::id> ids(static_cast<size_t>(ranks));
    for (int round = 0; round < 200; ++round) {
      threads.Run([&](int rank) {
        barrier.arrive_and_wait();  // would wait for ever, were they run one after the other
        const auto r = static_cast<size_t>(rank);
        if (round == 0) ids[r] = std::this_thread::get_id();
        EXPECT_EQ(ids[r], std::this_thread::get_id());
        ++rounds[r];
      });
    }
    EXPECT_EQ(rounds, std::vector<int>(static_cast<size_t>(ranks), 200));
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

TEST(InProcessGroupTest, EveryRankGetsTheSameSumsAndGapsStay) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (int ranks : {1, 2, 3, 4}) {
    RankThreads threads(ranks);
    auto group = kernels::MakeInProcessGroup(ranks);
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {1, 100}, {7, 33}, {64, 2}}) {
      constexpr int64_t kGap = 3;
      const int64_t stride = cols + kGap;
      std::vector<std::vector<float>> parts(static_cast<size_t>(ranks));
      std::vector<float> expected(static_cast<size_t>(rows * stride));
      for (auto& part : parts) {
        for (int64_t i = 0; i < rows * stride; ++i) part.push_back(normal(random));
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        for (const auto& part : parts) expected[i] += part[i];  // in the order of ranks
      }
      const auto before = parts;
      threads.Run([&](int rank) {
        group[static_cast<size_t>(rank)]->AllReduce(
            {parts[static_cast<size_t>(rank)].data(), rows, cols, stride});
      });
      for (size_t p = 0; p < parts.size(); ++p) {
        for (int64_t i = 0; i < rows * stride; ++i) {
          const auto at = static_cast<size_t>(i);
          EXPECT_EQ(parts[p][at], i % stride < cols ? expected[at] : before[p][at]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine
