#include "prefill_service/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "protocol/forecast/prefill_forecast.h"
#include "tests/seed.h"

namespace baton::prefill_service {
namespace {

constexpr forecast::QueueTargets kQueueTargets = forecast::QueueTargets::For(forecast::kDefaultSloTtft);

const absl::Time kStart = absl::UnixEpoch();

// Due then, early or late.
forecast::VirtualDeadline Always(absl::Time due) { return {.due = due}; }

TEST(QueueTest, ServesByDueTimeAndEqualsByArrival) {
  Queue queue;
  queue.Add(1, Always(kStart + absl::Seconds(5)));
  queue.Add(2, Always(kStart + absl::Seconds(1)));
  queue.Add(3, Always(kStart + absl::Seconds(5)));
  EXPECT_EQ(queue.First(), 2u);
  EXPECT_EQ(queue.After(2), 1u);
  EXPECT_EQ(queue.After(1), 3u);
  EXPECT_EQ(queue.After(3), std::nullopt);
  queue.Move(3, Always(kStart));
  EXPECT_EQ(queue.First(), 3u);
  queue.Move(3, Always(kStart + absl::Seconds(5)));
  EXPECT_EQ(queue.After(1), 3u) << "its place among equals stays";
  EXPECT_TRUE(queue.Remove(2));
  EXPECT_FALSE(queue.Remove(2));
  EXPECT_EQ(queue.size(), 2u);
}

TEST(QueueTest, WhoCantMeetItsTargetMakesWayOnce) {
  const auto at = [](double seconds) { return kStart + absl::Seconds(seconds); };
  Queue queue;
  queue.Add(1, {.due = at(1), .latest = at(2), .late = at(9)});
  queue.Add(2, {.due = at(3), .latest = at(4), .late = at(8)});
  queue.Advance(at(2));
  EXPECT_EQ(queue.First(), 1u) << "it can still";
  queue.Advance(at(2.5));
  EXPECT_EQ(queue.First(), 2u);
  queue.Add(3, Always(at(8.5)));
  queue.Advance(at(5));
  EXPECT_EQ(queue.First(), 2u);
  EXPECT_EQ(queue.After(2), 3u);
  EXPECT_EQ(queue.After(3), 1u);
  queue.Advance(at(100));
  EXPECT_EQ(queue.First(), 2u) << "not twice";
  // It takes less than was thought, and can make it after all.
  queue.Move(1, {.due = at(1), .latest = at(200), .late = at(9)});
  queue.Advance(at(101));
  EXPECT_EQ(queue.First(), 1u);
  for (const JobId id : {1, 2, 3}) EXPECT_TRUE(queue.Remove(id));
  queue.Advance(at(1e6));
  EXPECT_TRUE(queue.empty());
}

// A worker that serves one prompt after the other, and what became of each.
struct Served {
  double arrival = 0, seconds = 0, began = 0;
  double bound = 0;  // on its wait: what was there before it, and what came within a late target
  double ttft() const { return began + seconds - arrival; }
};

std::vector<Served> Serve(uint64_t seed, double load, bool first_come) {
  // One in 50 takes many seconds, and they make half of the work.
  constexpr double kShort = 0.1, kLong = 5;
  const double gap = (0.98 * kShort + 0.02 * kLong) / load;
  std::vector<Served> served(20'000);
  uint64_t draws = 0;
  double at = 0;
  for (Served& prompt : served) {
    prompt.arrival = at += -gap * std::log(1 - UniformAt(seed, draws++));
    const double mean = UniformAt(seed, draws++) < 0.02 ? kLong : kShort;
    prompt.seconds = mean * 2 * UniformAt(seed, draws++);
  }
  Queue queue;
  size_t next = 0;
  double now = 0, waiting = 0;
  while (next < served.size() || !queue.empty()) {
    if (queue.empty()) now = std::max(now, served[next].arrival);
    for (; next < served.size() && served[next].arrival <= now; ++next) {
      Served& prompt = served[next];
      // The job that runs until `now` was taken off `waiting` when it began.
      prompt.bound = now - prompt.arrival + waiting;
      for (size_t i = next + 1; i < served.size(); ++i) {
        if (served[i].arrival > prompt.arrival + kQueueTargets.late) break;
        prompt.bound += served[i].seconds;
      }
      waiting += prompt.seconds;
      queue.Add(next, first_come ? forecast::VirtualDeadline()
                                 : forecast::DeadlineOf(kStart + absl::Seconds(prompt.arrival),
                                                        prompt.seconds, kQueueTargets));
    }
    queue.Advance(kStart + absl::Seconds(now));
    const JobId id = *queue.First();
    queue.Remove(id);
    Served& prompt = served[id];
    prompt.began = now;
    waiting -= prompt.seconds;
    now += prompt.seconds;
  }
  return served;
}

// At every load, far above what can be served too: nobody is passed by anyone who comes a late target after
// it.
TEST(QueueTest, NobodyStarves) {
  const uint64_t seed = TestSeed();
  for (const double load : {0.7, 0.95, 1.5}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", load " << load);
    for (const Served& prompt : Serve(seed, load, false)) {
      ASSERT_LE(prompt.began - prompt.arrival, prompt.bound + 1e-6)
          << "of " << prompt.seconds << " s at " << prompt.arrival;
    }
  }
}

// The purpose of the order: more prompts meet the target than first come, first served, and the slowest of a
// hundred pay for it less than half as much again.
TEST(QueueTest, MoreMeetTheTargetAndTheSlowestPayLittle) {
  const uint64_t seed = TestSeed();
  for (const double load : {0.6, 0.8}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", load " << load);
    const auto judge = [&](bool first_come) {
      std::vector<double> ttft;
      for (const Served& prompt : Serve(seed, load, first_come)) ttft.push_back(prompt.ttft());
      std::sort(ttft.begin(), ttft.end());
      const auto met = std::lower_bound(ttft.begin(), ttft.end(), 2.0) - ttft.begin();
      return std::pair(static_cast<double>(met) / static_cast<double>(ttft.size()),
                       ttft[ttft.size() * 99 / 100]);
    };
    const auto [ours, our_p99] = judge(false);
    const auto [theirs, their_p99] = judge(true);
    EXPECT_GT(ours, theirs + 0.02);
    EXPECT_LT(our_p99, 1.5 * their_p99);
  }
}

}  // namespace
}  // namespace baton::prefill_service
