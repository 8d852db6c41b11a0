#include "prefill_service/queue.h"

#include <gtest/gtest.h>

#include <map>

#include "common/base/random.h"
#include "common/forecast/prefill_forecast.h"

namespace baton::prefill_service {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(QueueTest, ServesByDueTimeAndEqualsByArrival) {
  Queue queue;
  queue.Add(1, kStart + absl::Seconds(5));
  queue.Add(2, kStart + absl::Seconds(1));
  queue.Add(3, kStart + absl::Seconds(5));
  EXPECT_EQ(queue.First(), 2u);
  EXPECT_EQ(queue.After(2), 1u);
  EXPECT_EQ(queue.After(1), 3u);
  EXPECT_EQ(queue.After(3), std::nullopt);
  queue.Move(3, kStart);
  EXPECT_EQ(queue.First(), 3u);
  queue.Move(3, kStart + absl::Seconds(5));
  EXPECT_EQ(queue.After(1), 3u) << "its place among equals stays";
  EXPECT_TRUE(queue.Remove(2));
  EXPECT_FALSE(queue.Remove(2));
  EXPECT_EQ(queue.size(), 2u);
}

// An endless stream of short prompts that alone would keep the worker busy: every long one is served all the
// same, and none waits longer than what was there before it takes, plus the patience.
TEST(QueueTest, NobodyStarves) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  Queue queue;
  std::map<JobId, std::pair<double, double>> waiting;  // arrival, seconds
  double now = 0, next = 0, backlog_at_arrival = 0;
  std::map<JobId, double> bound;
  JobId ids = 0;
  int long_served = 0;
  for (int step = 0; step < 20'000; ++step) {
    while (next <= now) {
      const double seconds = UniformAt(seed, draws++) < 0.01 ? 10 : 0.05;
      backlog_at_arrival = 0;
      for (const auto& [id, job] : waiting) backlog_at_arrival += job.second;
      const JobId id = ++ids;
      waiting[id] = {next, seconds};
      // All that is there, all that may come until it is due, and the one that runs.
      bound[id] = backlog_at_arrival + forecast::kMostPatience * 4 + 10;
      queue.Add(id, forecast::VirtualDeadline(kStart + absl::Seconds(next), seconds));
      next += 0.15 * 2 * UniformAt(seed, draws++);
    }
    if (queue.empty()) {
      now = next;
      continue;
    }
    const JobId id = *queue.First();
    const auto [arrival, seconds] = waiting.at(id);
    ASSERT_LE(now - arrival, bound.at(id)) << "prompt " << id << " of " << seconds << " s";
    queue.Remove(id);
    waiting.erase(id);
    bound.erase(id);
    now += seconds;
    long_served += seconds > 1;
  }
  EXPECT_GT(long_served, 50);
}

}  // namespace
}  // namespace baton::prefill_service
