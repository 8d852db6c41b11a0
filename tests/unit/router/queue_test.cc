#include "router/admission/queue.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "common/base/random.h"

namespace baton::router::admission {
namespace {

absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

std::vector<uint64_t> Order(const Queue& queue) {
  std::vector<uint64_t> order;
  for (auto id = queue.First(); id.has_value(); id = queue.After(*id)) order.push_back(id->value());
  return order;
}

TEST(QueueTest, ServesByPriorityThenArrival) {
  Queue queue({});
  const EntryId a = queue.Add({.priority = 0, .bytes = 1, .deadline = absl::InfiniteFuture()});
  const EntryId b = queue.Add({.priority = -1, .bytes = 1, .deadline = absl::InfiniteFuture()});
  const EntryId c = queue.Add({.priority = 0, .bytes = 1, .deadline = absl::InfiniteFuture()});
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{b.value(), a.value(), c.value()}));
  EXPECT_TRUE(queue.Remove(b));
  EXPECT_FALSE(queue.Remove(b));
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{a.value(), c.value()}));
}

TEST(QueueTest, WhatIsPutBackKeepsItsPlace) {
  Queue queue({});
  const Entry entry{.priority = 0, .bytes = 1, .deadline = absl::InfiniteFuture()};
  const EntryId first = queue.Add(entry);
  const EntryId second = queue.Add(entry);
  queue.Remove(first);
  queue.PutBack(first, entry);
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{first.value(), second.value()}));
}

TEST(QueueTest, IsBoundedByCountAndBytes) {
  Queue queue({.entries = 2, .bytes = 100});
  queue.Add({.priority = 0, .bytes = 60, .deadline = absl::InfiniteFuture()});
  EXPECT_TRUE(queue.CheckRoom(1, 40).ok());
  const absl::Status bytes = queue.CheckRoom(1, 41);
  EXPECT_TRUE(absl::IsResourceExhausted(bytes));
  EXPECT_NE(bytes.message().find("60 of 100 bytes"), absl::string_view::npos) << bytes;
  const absl::Status count = queue.CheckRoom(2, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(count));
  EXPECT_NE(count.message().find("1 of 2 requests"), absl::string_view::npos) << count;
}

TEST(QueueTest, GivesOutTheExpiredEarliestFirst) {
  Queue queue({});
  const EntryId late = queue.Add({.priority = 0, .bytes = 1, .deadline = At(3)});
  const EntryId soon = queue.Add({.priority = 0, .bytes = 1, .deadline = At(1)});
  queue.Add({.priority = 0, .bytes = 1, .deadline = At(9)});
  EXPECT_TRUE(queue.TakeExpired(At(0)).empty());
  EXPECT_EQ(queue.TakeExpired(At(3)), (std::vector<EntryId>{soon, late}));
  EXPECT_EQ(queue.size(), 1);
  EXPECT_EQ(queue.bytes(), 1);
}

// Against a list that is sorted anew each time.
TEST(QueueTest, EqualsAnObviousQueueUnderRandomOperations) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  Queue queue({});
  std::map<std::pair<int, uint64_t>, Entry> model;
  std::map<uint64_t, Entry> out;
  int now = 0;
  for (int step = 0; step < 5000; ++step) {
    switch (draw(4)) {
      case 0: {
        const Entry entry{.priority = draw(3) - 1, .bytes = draw(50), .deadline = At(now + draw(40))};
        model[{entry.priority, queue.Add(entry).value()}] = entry;
        break;
      }
      case 1:
        if (const auto first = queue.First(); first.has_value()) {
          ASSERT_EQ(first->value(), model.begin()->first.second);
          out[first->value()] = model.begin()->second;
          model.erase(model.begin());
          ASSERT_TRUE(queue.Remove(*first));
        }
        break;
      case 2:
        if (!out.empty()) {
          const auto [id, entry] = *out.begin();
          out.erase(out.begin());
          queue.PutBack(EntryId(id), entry);
          model[{entry.priority, id}] = entry;
        }
        break;
      default:
        now += draw(3);
        for (EntryId id : queue.TakeExpired(At(now))) {
          ASSERT_EQ(std::erase_if(model,
                                  [&](const auto& item) {
                                    return item.first.second == id.value() && item.second.deadline <= At(now);
                                  }),
                    1u);
        }
        for (const auto& [place, entry] : model) ASSERT_GT(entry.deadline, At(now));
    }
    int64_t bytes = 0;
    for (const auto& [place, entry] : model) bytes += entry.bytes;
    ASSERT_EQ(queue.bytes(), bytes);
    ASSERT_EQ(queue.size(), static_cast<int64_t>(model.size()));
  }
}

}  // namespace
}  // namespace baton::router::admission
