#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "common/base/random.h"
#include "router/admission/desk.h"

namespace baton::router::admission {
namespace {

using ::testing::HasSubstr;

constexpr TenantId kA(1), kB(2);

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

std::vector<EntryId> Admit(Desk* desk, const Desk::Petition& petition, absl::Time now) {
  auto decided = desk->Admit(petition, now);
  const auto* refusal = std::get_if<Refusal>(&decided);
  EXPECT_EQ(refusal, nullptr) << refusal->message;
  return refusal == nullptr ? std::get<Desk::Admitted>(decided).entries : std::vector<EntryId>{};
}

Refusal Refused(Desk* desk, const Desk::Petition& petition, absl::Time now) {
  auto decided = desk->Admit(petition, now);
  if (const auto* refusal = std::get_if<Refusal>(&decided)) return *refusal;
  ADD_FAILURE() << "was let in";
  return {};
}

TEST(DeskTest, ConcurrencyHoldsFurtherChoicesUntilTheRequestEnds) {
  Desk desk({});
  desk.SetTenant(kA, {.concurrency = 2}, At(0));
  const auto two = Admit(&desk, {.tenant = kA, .choices = 2, .prompt_tokens = 10}, At(0));
  const auto third = Admit(&desk, {.tenant = kA, .prompt_tokens = 10}, At(0));
  desk.Serve(two[0], At(0));
  desk.Serve(two[1], At(0));
  EXPECT_EQ(desk.running(kA), 2);
  EXPECT_FALSE(desk.First().has_value());
  const auto other = Admit(&desk, {.tenant = kB, .prompt_tokens = 10}, At(0));
  EXPECT_EQ(desk.First(), other[0]) << "others go on";
  desk.Serve(other[0], At(0));
  desk.Settle(two[0], {.requests = 1, .prompt_tokens = 10, .output_tokens = 5}, At(1));
  EXPECT_EQ(desk.running(kA), 0);
  EXPECT_EQ(desk.First(), third[0]);
}

TEST(DeskTest, ARefusedChoiceComesBackToItsPlace) {
  Desk desk({});
  desk.SetTenant(kA, {.concurrency = 1}, At(0));
  const auto first = Admit(&desk, {.tenant = kA, .prompt_tokens = 10}, At(0));
  const auto second = Admit(&desk, {.tenant = kA, .prompt_tokens = 10}, At(0));
  desk.Serve(first[0], At(0));
  desk.PutBack(first[0], At(10), At(1));
  EXPECT_EQ(desk.First(), first[0]);
  EXPECT_EQ(desk.TakeExpired(At(10)), first);
  desk.Settle(first[0], {.requests = 1}, At(10));
  EXPECT_EQ(desk.First(), second[0]);
}

TEST(DeskTest, ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  Desk desk({});
  desk.SetTenant(kA, {}, At(0));
  // 100 tokens in a tenth of a second, for two seconds, while others wait.
  std::deque<EntryId> waiting;
  const Desk::Petition petition{.tenant = kA, .prompt_tokens = 99, .max_tokens = 1};
  for (int i = 0; i < 30; ++i) waiting.push_back(Admit(&desk, petition, At(0))[0]);
  double now = 0;
  for (int i = 0; i < 20; ++i) {
    now += 0.1;
    desk.Serve(*desk.First(), At(now));
  }
  const auto wait = desk.PredictedWait(kA, 0);
  ASSERT_TRUE(wait.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*wait), 1.0, 0.1) << "1000 tokens at 1000 a second";

  Desk::Petition urgent = petition;
  urgent.deadline = At(now + 0.5);
  const Refusal refusal = Refused(&desk, urgent, At(now));
  EXPECT_EQ(refusal.reason, Reason::kDeadline);
  EXPECT_THAT(refusal.message, HasSubstr("the deadline is in 0.500 s"));
  EXPECT_GE(refusal.retry, absl::Milliseconds(100));
  urgent.priority = kBestPriority;
  Admit(&desk, urgent, At(now));  // it doesn't wait for the others

  Desk::Petition patient = petition;
  patient.deadline = At(now + 5);
  Admit(&desk, patient, At(now));
  patient.predicted.ttft = absl::Seconds(4.5);
  EXPECT_EQ(Refused(&desk, patient, At(now)).reason, Reason::kDeadline);
}

TEST(DeskTest, WaitsNoLongerThanWhatIsLeftToTheFirstToken) {
  Desk desk({});
  const auto entry =
      Admit(&desk, {.tenant = kA, .deadline = At(10), .predicted = {.ttft = absl::Seconds(3)}}, At(0));
  EXPECT_TRUE(desk.TakeExpired(At(6.9)).empty());
  EXPECT_EQ(desk.TakeExpired(At(7)), entry);
}

TEST(DeskTest, AFullQueueMakesRoomForWhoeverHasLess) {
  Desk desk({.entries = 3});
  std::vector<EntryId> flood;
  for (int i = 0; i < 3; ++i) flood.push_back(Admit(&desk, {.tenant = kA, .prompt_tokens = 100}, At(i))[0]);
  EXPECT_EQ(Refused(&desk, {.tenant = kA, .prompt_tokens = 100}, At(3)).reason, Reason::kTotalQueue);
  auto decided = desk.Admit({.tenant = kB, .prompt_tokens = 100}, At(3));
  ASSERT_TRUE(std::holds_alternative<Desk::Admitted>(decided));
  EXPECT_EQ(std::get<Desk::Admitted>(decided).displaced, std::vector<EntryId>{flood[2]});
  EXPECT_EQ(desk.queue().size(), 3);
  // Two more than there is room for, even when all that may go has gone: nobody is displaced for nothing.
  EXPECT_EQ(Refused(&desk, {.tenant = kB, .choices = 3, .prompt_tokens = 1}, At(3)).reason,
            Reason::kTotalQueue);
  EXPECT_EQ(desk.queue().size(), 3);
  EXPECT_EQ(desk.queue().depth(kA).entries, 2);
}

TEST(DeskTest, TheRetryDelayIsThatOfTheTenantsOwnLine) {
  Desk desk({.entries = 503});
  desk.SetTenant(kA, {}, At(0));
  desk.SetTenant(kB, {.queue = {.entries = 2}}, At(0));
  // 100 tokens in a tenth of a second, for two seconds, while others wait.
  for (int i = 0; i < 521; ++i) {
    if (i >= 501) desk.Serve(*desk.First(), At(0.1 * (i - 500)));
    Admit(&desk, {.tenant = kA, .prompt_tokens = 99, .max_tokens = 1}, At(i < 501 ? 0 : 0.1 * (i - 500)));
  }
  for (int i = 0; i < 2; ++i) Admit(&desk, {.tenant = kB, .prompt_tokens = 99, .max_tokens = 1}, At(2));
  // 50,000 tokens at 1,000 a second: who comes back in ten seconds is refused again.
  const Refusal flood = Refused(&desk, {.tenant = kA, .prompt_tokens = 99, .max_tokens = 1}, At(2));
  EXPECT_EQ(flood.reason, Reason::kTotalQueue);
  EXPECT_NEAR(absl::ToDoubleSeconds(flood.retry), 50, 5);
  // Two of its own, and as many of the flood's beside them.
  const Refusal small = Refused(&desk, {.tenant = kB, .prompt_tokens = 99, .max_tokens = 1}, At(2));
  EXPECT_EQ(small.reason, Reason::kTenantQueue);
  EXPECT_NEAR(absl::ToDoubleSeconds(small.retry), 0.4, 0.1);
}

TEST(DeskTest, TheRetryDelayIsAMinuteAtMost) {
  Desk desk({});
  for (int i = 0; i < 500; ++i) Admit(&desk, {.tenant = kA, .prompt_tokens = 99, .max_tokens = 1}, At(0));
  // 10 tokens a second: an hour and more.
  for (int i = 1; i <= 5; ++i) desk.Serve(*desk.First(), At(10 * i));
  EXPECT_EQ(desk.RetryDelay(kA), absl::Minutes(1));
  EXPECT_EQ(desk.RetryDelay(kB), absl::Milliseconds(100)) << "nothing is ahead of it";
  EXPECT_EQ(Desk::TooLate(true, absl::Seconds(1), absl::ZeroDuration(), {.ttft = absl::Seconds(40)}).retry,
            absl::Seconds(39));
}

TEST(DeskTest, WhatIsRefusedIsNotCharged) {
  Desk desk({.entries = 1});
  desk.SetTenant(kA, {.requests_per_minute = 2, .prompt_tokens_per_minute = 1000}, At(0));
  const auto entry = Admit(&desk, {.tenant = kA, .prompt_tokens = 100}, At(0));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Refused(&desk, {.tenant = kA, .prompt_tokens = 100}, At(0)).reason, Reason::kTotalQueue);
  }
  EXPECT_DOUBLE_EQ(desk.LeftOver(kA, At(0)).requests, 0.5);
  EXPECT_DOUBLE_EQ(desk.LeftOver(kA, At(0)).prompt_tokens, 0.9);
  desk.Withdraw(entry[0], At(0));
  desk.Settle(entry[0], {.requests = 1}, At(0));
  EXPECT_DOUBLE_EQ(desk.LeftOver(kA, At(0)).prompt_tokens, 1);
}

TEST(DeskTest, CheapCallsCountAsRequests) {
  Desk desk({});
  desk.SetTenant(kA, {.requests_per_minute = 2}, At(0));
  EXPECT_FALSE(desk.AdmitCheapCall(kA, At(0)).has_value());
  EXPECT_FALSE(desk.AdmitCheapCall(kA, At(0)).has_value());
  const auto refusal = desk.AdmitCheapCall(kA, At(0));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::kRequestRate);
}

// Whatever happens: what runs and waits is accounted for, and when all have ended nothing is left. And the
// same events give the same order.
TEST(DeskTest, ConservesUnderRandomRequestsAndIsDeterministic) {
  const uint64_t seed = RandomU64();
  SCOPED_TRACE(seed);
  std::vector<std::vector<uint64_t>> orders;
  for (int run = 0; run < 2; ++run) {
    std::mt19937_64 random(seed);
    Desk desk({.entries = 50, .tokens = 100'000, .bytes = 1 << 20});
    for (uint32_t t = 0; t < 4; ++t) {
      desk.SetTenant(TenantId(t),
                     {.weight = 1.0 + t,
                      .concurrency = t == 3 ? 0 : 3 + static_cast<int64_t>(t),
                      .prompt_tokens_per_minute = t == 2 ? 200'000 : 0},
                     At(0));
    }
    struct Request {
      TenantId tenant;
      std::vector<EntryId> waiting, running;
    };
    std::map<uint64_t, Request> open;
    std::map<uint64_t, uint64_t> account_of;
    std::vector<uint64_t> order;
    double now = 0;
    const auto end = [&](uint64_t account) {
      for (const EntryId id : open[account].waiting) desk.Withdraw(id, At(now));
      desk.Settle(EntryId(account), {.requests = 1, .prompt_tokens = 10, .output_tokens = 10}, At(now));
      open.erase(account);
    };
    for (int step = 0; step < 4000; ++step) {
      now += static_cast<double>(random() % 100) / 100;
      switch (random() % 5) {
        case 0:
        case 1: {
          const TenantId tenant(static_cast<uint32_t>(random() % 4));
          auto decided = desk.Admit({.tenant = tenant,
                                     .choices = static_cast<int>(1 + random() % 3),
                                     .prompt_tokens = static_cast<int64_t>(random() % 5000),
                                     .max_tokens = 100,
                                     .bytes = 100,
                                     .priority = static_cast<int>(random() % 21) - 10,
                                     .deadline = At(now + static_cast<double>(random() % 200))},
                                    At(now));
          if (auto* admitted = std::get_if<Desk::Admitted>(&decided)) {
            for (const EntryId id : admitted->displaced) {
              const uint64_t account = account_of.at(id.value());
              if (!open.contains(account)) continue;
              std::erase(open[account].waiting, id);
              end(account);
            }
            const uint64_t account = admitted->entries.front().value();
            for (const EntryId id : admitted->entries) account_of[id.value()] = account;
            open[account] = {tenant, admitted->entries, {}};
          }
          break;
        }
        case 2:
          if (const auto first = desk.First(); first.has_value() && open.size() > 3) {
            desk.Serve(*first, At(now));
            order.push_back(first->value());
            Request& request = open[account_of.at(first->value())];
            std::erase(request.waiting, *first);
            request.running.push_back(*first);
          }
          break;
        case 3:
          if (!open.empty()) {
            auto victim = open.begin();
            std::advance(victim, random() % open.size());
            Request& request = victim->second;
            if (!request.running.empty() && random() % 2 == 0) {
              desk.PutBack(request.running.back(), At(now + 50), At(now));
              request.waiting.push_back(request.running.back());
              request.running.pop_back();
            } else {
              end(victim->first);
            }
          }
          break;
        default:
          for (const EntryId id : desk.TakeExpired(At(now))) {
            const uint64_t account = account_of.at(id.value());
            if (!open.contains(account)) continue;
            std::erase(open[account].waiting, id);
            end(account);
          }
      }
      size_t waiting = 0;
      std::map<uint32_t, int64_t> running;
      for (const auto& [account, request] : open) {
        waiting += request.waiting.size();
        running[request.tenant.value()] += static_cast<int64_t>(request.running.size());
      }
      ASSERT_EQ(desk.queue().size(), static_cast<int64_t>(waiting)) << "step " << step;
      ASSERT_EQ(desk.accounts(), open.size());
      for (uint32_t t = 0; t < 4; ++t) ASSERT_EQ(desk.running(TenantId(t)), running[t]);
      for (uint32_t t = 0; t < 3; ++t) ASSERT_LE(running[t], 3 + t) << "concurrency";
    }
    while (!open.empty()) end(open.begin()->first);
    EXPECT_TRUE(desk.queue().empty());
    EXPECT_EQ(desk.queue().tokens(), 0);
    EXPECT_GT(order.size(), 100u);
    orders.push_back(std::move(order));
  }
  EXPECT_EQ(orders[0], orders[1]);
}

}  // namespace
}  // namespace baton::router::admission
