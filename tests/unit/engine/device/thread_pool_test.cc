#include "engine/device/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

namespace baton::device {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    // Plain ints on purpose: a task that ran twice, or a write that isn't visible on return, shows up here
    // and as a race under TSan.
    std::vector<int> runs(1000);
    for (int round = 1; round <= 200; ++round) {
      const int64_t count = round * 37 % 1000;
      pool.ParallelFor(count, [&](int64_t i) { ++runs[i]; });
      int64_t total = std::accumulate(runs.begin(), runs.end(), int64_t{0});
      ASSERT_EQ(total, count) << threads << " threads, round " << round;
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(runs[i], 1);
      std::fill(runs.begin(), runs.end(), 0);
    }
  }
}

TEST(ThreadPoolTest, ParallelRangesRunsEveryTaskOnceAndAloneInOrder) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
      std::vector<int> runs(static_cast<size_t>(count));
      std::vector<int64_t> order;
      pool.ParallelRanges(count, [&](int64_t i) {
        ++runs[static_cast<size_t>(i)];
        if (threads == 1) order.push_back(i);
      });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(count), 1)) << threads << " threads";
      EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    }
  }
}

TEST(ThreadPoolTest, WakesThreadsThatFellAsleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    // Two tasks that wait for each other end only when two threads run them, so the sleeper must have come.
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, [&](int64_t) {
      arrived.fetch_add(1);
      arrived.notify_all();
      for (int seen; (seen = arrived.load()) < 2;) arrived.wait(seen);
    });
    EXPECT_EQ(arrived.load(), 2);
    // Long enough for the worker to give up spinning, with no clock to wait on: fresh memory, touched page by
    // page.
    auto pages = std::make_unique<char[]>(4 << 20);
    for (int i = 0; i < 4 << 20; i += 4096) pages[i] = 1;
  }
}

TEST(ThreadPoolTest, ReturnsOnlyWhenAllTasksAreDone) {
  ThreadPool pool(4);
  for (int round = 0; round < 2000; ++round) {
    int64_t values[7] = {};
    pool.ParallelFor(7, [&](int64_t i) { values[i] = round + i; });
    for (int64_t i = 0; i < 7; ++i) ASSERT_EQ(values[i], round + i);
  }
}

TEST(ThreadPoolTest, NothingToDoIsFine) {
  ThreadPool pool(2);
  pool.ParallelFor(0, [](int64_t) { FAIL(); });
}

TEST(ThreadPoolTest, UsesAtLeastOneCore) { EXPECT_GE(UsableCores(), 1); }

using ThreadPoolDeathTest = testing::Test;

TEST(ThreadPoolDeathTest, RefusesACallFromInsideATask) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.ParallelFor(4, [&](int64_t) { pool.ParallelFor(4, [](int64_t) {}); });
      },
      "called from inside a task");
}

}  // namespace
}  // namespace baton::device
