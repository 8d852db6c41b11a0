#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "router/admission/queue.h"
#include "tests/fuzz/admission_operations.h"
#include "tests/seed.h"
#include "tests/unit/router/admission_time.h"

namespace baton::router::admission {
namespace {

using ::testing::HasSubstr;

// Serves until nobody can be; returns the order.
std::vector<uint64_t> ServeAll(Queue* queue) {
  std::vector<uint64_t> order;
  while (const auto id = queue->First()) {
    order.push_back(id->value());
    queue->Serve(*id);
  }
  return order;
}

TEST(QueueTest, ServesByPriorityThenArrival) {
  Queue queue({});
  const EntryId a = queue.Add({.priority = 0});
  const EntryId b = queue.Add({.priority = -1});
  const EntryId c = queue.Add({.priority = 0});
  EXPECT_EQ(queue.First(), b);
  EXPECT_TRUE(queue.Remove(b).has_value());
  EXPECT_FALSE(queue.Remove(b).has_value());
  EXPECT_EQ(ServeAll(&queue), (std::vector<uint64_t>{a.value(), c.value()}));
}

TEST(QueueTest, TellsWhatIsAhead) {
  Queue queue({});
  queue.SetTenant(TenantId(1), 1, {});
  queue.SetTenant(TenantId(2), 3, {});
  std::map<uint64_t, Queue::Ahead> ahead;
  const auto look = [&] {
    ahead.clear();
    for (const Queue::Ahead& one : queue.WhatIsAhead()) ahead[one.id.value()] = one;
  };
  std::vector<EntryId> mine;
  for (int i = 0; i < 3; ++i) mine.push_back(queue.Add({.tenant = TenantId(1), .tokens = 100}));
  look();
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_DOUBLE_EQ(ahead[mine[i].value()].entries, static_cast<double>(i));
    EXPECT_DOUBLE_EQ(ahead[mine[i].value()].tokens, 100.0 * static_cast<double>(i));
  }
  // For each of the first tenant's, three of another's go, and no more than there are.
  std::vector<EntryId> others;
  for (int i = 0; i < 4; ++i) others.push_back(queue.Add({.tenant = TenantId(2), .tokens = 100}));
  look();
  EXPECT_DOUBLE_EQ(ahead[mine[0].value()].entries, 0);
  EXPECT_DOUBLE_EQ(ahead[mine[1].value()].entries, 4);
  EXPECT_DOUBLE_EQ(ahead[mine[2].value()].entries, 6);
  EXPECT_DOUBLE_EQ(ahead[mine[2].value()].tokens, 600);
  EXPECT_NEAR(ahead[others[3].value()].entries, 4, 1e-9);
  EXPECT_TRUE(Queue({}).WhatIsAhead().empty());
}

TEST(QueueTest, AStepOfPriorityIsWorthKAgeingOfWaiting) {
  Queue queue({});
  const EntryId old = queue.Add({.priority = 1, .arrival = At(0)});
  const EntryId soon = queue.Add({.priority = 0, .arrival = At(4)});
  const EntryId late = queue.Add({.priority = 0, .arrival = At(6)});
  EXPECT_EQ(ServeAll(&queue), (std::vector<uint64_t>{soon.value(), old.value(), late.value()}));
}

// The worst priority against a stream of the best, at exactly the rate of service.
TEST(QueueTest, NobodyStarvesWithinATenant) {
  Queue queue({});
  const EntryId poor = queue.Add({.priority = kWorstPriority, .arrival = At(0)});
  const int latest = (kWorstPriority - kBestPriority) * static_cast<int>(Queue::kAgeing / absl::Seconds(1));
  for (int second = 0; second <= latest + 1; ++second) {
    queue.Add({.priority = kBestPriority, .arrival = At(second)});
    const EntryId first = *queue.First();
    queue.Serve(first);
    if (first == poor) {
      EXPECT_GE(second, latest - 1);
      return;
    }
  }
  FAIL() << "still waiting after " << latest << " s";
}

TEST(QueueTest, WhatIsPutBackKeepsItsPlaceAndItsCredit) {
  Queue queue({});
  const Entry entry{.tenant = TenantId(1), .tokens = 5000};
  const EntryId first = queue.Add(entry);
  const EntryId second = queue.Add(entry);
  const EntryId other = queue.Add({.tenant = TenantId(2), .tokens = 5000});
  EXPECT_EQ(queue.First(), first);
  queue.PutBack(first, queue.Serve(first), entry.tokens);
  EXPECT_EQ(ServeAll(&queue), (std::vector<uint64_t>{first.value(), other.value(), second.value()}));
}

TEST(QueueTest, IsBoundedInEachMeasureAndSaysInWhich) {
  Queue queue({.entries = 2, .tokens = 1000, .bytes = 100});
  queue.Add({.tokens = 600, .bytes = 60});
  EXPECT_FALSE(queue.CheckRoom(TenantId(0), 1, 400, 40).has_value());
  const auto tokens = queue.CheckRoom(TenantId(0), 1, 401, 40);
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->reason, Reason::kTotalQueue);
  EXPECT_THAT(tokens->message, HasSubstr("600 of 1000 tokens"));
  const auto bytes = queue.CheckRoom(TenantId(0), 1, 1, 41);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_THAT(bytes->message, HasSubstr("60 of 100 bytes"));
  const auto count = queue.CheckRoom(TenantId(0), 2, 1, 1);
  ASSERT_TRUE(count.has_value());
  EXPECT_THAT(count->message, HasSubstr("1 of 2 requests"));
}

TEST(QueueTest, ATenantsOwnBoundsHoldForItAlone) {
  Queue queue({});
  queue.SetTenant(TenantId(1), 1, {.entries = 1, .tokens = 0, .bytes = 0});
  queue.Add({.tenant = TenantId(1)});
  const auto refusal = queue.CheckRoom(TenantId(1), 1, 1, 1);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::kTenantQueue);
  EXPECT_FALSE(queue.CheckRoom(TenantId(2), 1, 1, 1).has_value());
}

TEST(QueueTest, APausedTenantWaitsAndGathersNoCredit) {
  Queue queue({});
  queue.Pause(TenantId(1), true);
  queue.Add({.tenant = TenantId(1), .tokens = 100'000});
  EXPECT_FALSE(queue.First().has_value());
  const EntryId other = queue.Add({.tenant = TenantId(2), .tokens = 1'000'000});
  EXPECT_EQ(queue.First(), other);
  queue.Serve(other);
  queue.Pause(TenantId(1), false);
  // Both have to gather credit from here on: the cheaper one goes first.
  const EntryId cheap = queue.Add({.tenant = TenantId(2), .tokens = 50'000});
  EXPECT_EQ(queue.First(), cheap);
}

TEST(QueueTest, DisplacesTheNewestOfWhoeverWaitsWithMostForItsWeight) {
  Queue queue({.entries = 4});
  queue.SetTenant(TenantId(2), 10, {});
  queue.Add({.tenant = TenantId(1), .tokens = 100});
  const EntryId newest = queue.Add({.tenant = TenantId(1), .tokens = 100});
  queue.Add({.tenant = TenantId(2), .tokens = 500});
  queue.Add({.tenant = TenantId(2), .tokens = 500});
  EXPECT_EQ(queue.Displaceable(TenantId(3), 100), newest);
  EXPECT_FALSE(queue.Displaceable(TenantId(3), 200).has_value()) << "it would be no better";
  EXPECT_FALSE(queue.Displaceable(TenantId(1), 1).has_value()) << "not one's own";
}

TEST(QueueTest, GivesOutTheExpiredEarliestFirst) {
  Queue queue({});
  const EntryId late = queue.Add({.bytes = 1, .deadline = At(3)});
  const EntryId soon = queue.Add({.bytes = 1, .deadline = At(1)});
  queue.Add({.bytes = 1, .deadline = At(9)});
  EXPECT_TRUE(queue.TakeExpired(At(0)).empty());
  const auto expired = queue.TakeExpired(At(3));
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].first, soon);
  EXPECT_EQ(expired[1].first, late);
  EXPECT_EQ(queue.size(), 1);
  EXPECT_EQ(queue.bytes(), 1);
}

// Deficit round robin's bound: between tenants that always have something waiting, service per weight differs
// by no more than two quanta and their largest prompts.
TEST(QueueTest, ServiceIsProportionalToWeightsWithinTheBound) {
  for (int round = 0; round < 20; ++round) {
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr int kTenants = 5;
    constexpr int64_t kLargest = 20'000;
    Queue queue({});
    std::vector<double> weights, served(kTenants, 0);
    const auto add = [&](int tenant) {
      // Some send short prompts, some long ones.
      const int64_t most = tenant % 2 == 0 ? kLargest : 200;
      queue.Add({.tenant = TenantId(tenant),
                 .priority = static_cast<int>(random() % 21) - 10,
                 .tokens = 1 + static_cast<int64_t>(random() % most)});
    };
    for (int tenant = 0; tenant < kTenants; ++tenant) {
      weights.push_back(0.1 + static_cast<double>(random() % 100) / 10);
      queue.SetTenant(TenantId(tenant), weights.back(), {});
      for (int i = 0; i < 3; ++i) add(tenant);
    }
    for (int step = 0; step < 5000; ++step) {
      const Entry entry = queue.Serve(*queue.First());
      const int tenant = static_cast<int>(entry.tenant.value());
      served[tenant] += static_cast<double>(entry.tokens);
      add(tenant);
      for (int other = 0; other < kTenants; ++other) {
        const double bound =
            2 * Queue::kQuantumTokens + kLargest / weights[tenant] + kLargest / weights[other];
        ASSERT_LE(std::abs(served[tenant] / weights[tenant] - served[other] / weights[other]), bound)
            << "step " << step;
      }
    }
  }
}

// A flood by one tenant costs another no more than its own round.
TEST(QueueTest, AFloodDoesNotDelayAnothersFirstRequest) {
  Queue queue({.entries = 100'000});
  for (int i = 0; i < 10'000; ++i) queue.Add({.tenant = TenantId(1), .tokens = 1000});
  for (int i = 0; i < 50; ++i) queue.Serve(*queue.First());
  const EntryId other = queue.Add({.tenant = TenantId(2), .tokens = 1000});
  int64_t before = 0;
  while (queue.First() != other) before += queue.Serve(*queue.First()).tokens;
  EXPECT_LE(before, 1000 + 2 * Queue::kQuantumTokens);
}

TEST(QueueTest, TokensBeforeAreWhatIsServedBeforeANewChoiceAtMost) {
  for (int round = 0; round < 50; ++round) {
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Queue queue({});
    for (int i = 0; i < 200; ++i) {
      queue.Add({.tenant = TenantId(random() % 3), .tokens = 1 + static_cast<int64_t>(random() % 300)});
    }
    const TenantId tenant(static_cast<uint32_t>(random() % 3));
    const double predicted = queue.TokensBefore(tenant, 0);
    const EntryId mine = queue.Add({.tenant = tenant, .tokens = 100});
    int64_t before = 0;
    while (queue.First() != mine) before += queue.Serve(*queue.First()).tokens;
    // Up to a round of the others.
    EXPECT_LE(static_cast<double>(before), predicted + 3 * 2 * (Queue::kQuantumTokens + 300));
  }
}

TEST(QueueTest, EqualsAnObviousQueueUnderRandomOperations) {
  int64_t done = 0;
  for (int i = 0; i < 40; ++i) {
    const uint64_t seed = TestSeed();
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<uint8_t> bytes(3000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const auto run = RunAdmissionOperations(bytes);
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status();
    done += *run;
  }
  RecordProperty("operations", std::to_string(done));
}

}  // namespace
}  // namespace baton::router::admission
