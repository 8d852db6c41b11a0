#include "router/admission/admission_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "tests/seed.h"
#include "tests/unit/router/admission_time.h"

namespace baton::router::admission {
namespace {

using ::testing::HasSubstr;

constexpr TenantId kA(1), kB(2);

// As the dispatcher asks, where nothing is predicted of the first token.
std::variant<AdmissionController::Admitted, Refusal> Decide(AdmissionController* controller,
                                                            const Request& request, absl::Time now,
                                                            absl::Duration ttft = absl::ZeroDuration()) {
  return controller->Admit(request, {.due = request.deadline, .ttft = ttft}, absl::InfiniteDuration(), now);
}

std::vector<EntryId> Admit(AdmissionController* controller, const Request& request, absl::Time now,
                           absl::Duration ttft = absl::ZeroDuration()) {
  auto decided = Decide(controller, request, now, ttft);
  const auto* refusal = std::get_if<Refusal>(&decided);
  EXPECT_EQ(refusal, nullptr) << refusal->message;
  return refusal == nullptr ? std::get<AdmissionController::Admitted>(decided).entries
                            : std::vector<EntryId>{};
}

Refusal Refused(AdmissionController* controller, const Request& request, absl::Time now,
                absl::Duration ttft = absl::ZeroDuration()) {
  auto decided = Decide(controller, request, now, ttft);
  if (const auto* refusal = std::get_if<Refusal>(&decided)) return *refusal;
  ADD_FAILURE() << "was let in";
  return {};
}

TEST(AdmissionControllerTest, ConcurrencyHoldsFurtherChoicesUntilTheRequestEnds) {
  AdmissionController controller({});
  controller.SetTenant(kA, {.concurrency = 2}, At(0));
  const auto two = Admit(&controller, {.tenant = kA, .choices = 2, .prompt_tokens = 10}, At(0));
  const auto third = Admit(&controller, {.tenant = kA, .prompt_tokens = 10}, At(0));
  controller.Serve(two[0], At(0));
  controller.Serve(two[1], At(0));
  EXPECT_EQ(controller.running(kA), 2);
  EXPECT_FALSE(controller.First().has_value());
  const auto other = Admit(&controller, {.tenant = kB, .prompt_tokens = 10}, At(0));
  EXPECT_EQ(controller.First(), other[0]) << "others go on";
  controller.Serve(other[0], At(0));
  controller.Settle(two[0], {.requests = 1, .prompt_tokens = 10, .output_tokens = 5}, At(1));
  EXPECT_EQ(controller.running(kA), 0);
  EXPECT_EQ(controller.First(), third[0]);
}

TEST(AdmissionControllerTest, AModelsLimitsHoldForAllTenantsAndFleetsTogether) {
  constexpr TenantId kModel(0);
  const auto models = std::make_shared<Meters>();
  models->Configure(kModel, {.requests_per_minute = 3, .output_tokens_per_minute = 6000}, At(0));
  AdmissionController first({}, std::make_shared<Meters>(), models);
  AdmissionController second({}, std::make_shared<Meters>(), models);
  const Request a = {.tenant = kA, .model = kModel, .prompt_tokens = 10, .max_tokens = 1000};
  Request b = a;
  b.tenant = kB;
  const auto one = Admit(&first, a, At(0));
  Admit(&second, b, At(0));
  Admit(&first, b, At(0));
  const Refusal refusal = Refused(&second, a, At(0));
  EXPECT_EQ(refusal.reason, Reason::kRequestRate);
  EXPECT_THAT(refusal.message, HasSubstr("the model's limit of 3 requests per minute is used up"));
  EXPECT_NEAR(absl::ToDoubleSeconds(refusal.retry), 20, 0.1);
  Request other = a;  // of another model
  other.model.reset();
  Admit(&second, other, At(0));
  // The tokens that an answer really took are settled there, too.
  const double left = models->LeftOver(kModel, At(0)).output_tokens;
  first.Serve(one[0], At(0));
  first.Settle(one[0], {.requests = 1, .prompt_tokens = 10, .output_tokens = 5}, At(0));
  EXPECT_GT(models->LeftOver(kModel, At(0)).output_tokens, left);
}

TEST(AdmissionControllerTest, ARefusedChoiceComesBackToItsPlace) {
  AdmissionController controller({});
  controller.SetTenant(kA, {.concurrency = 1}, At(0));
  const auto first = Admit(&controller, {.tenant = kA, .prompt_tokens = 10}, At(0));
  const auto second = Admit(&controller, {.tenant = kA, .prompt_tokens = 10}, At(0));
  controller.Serve(first[0], At(0));
  controller.PutBack(first[0], At(10), At(1));
  EXPECT_EQ(controller.First(), first[0]);
  EXPECT_EQ(controller.TakeExpired(At(10)), first);
  controller.Settle(first[0], {.requests = 1}, At(10));
  EXPECT_EQ(controller.First(), second[0]);
}

TEST(AdmissionControllerTest, ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  AdmissionController controller({});
  controller.SetTenant(kA, {}, At(0));
  // 100 tokens in a tenth of a second, for two seconds, while others wait.
  std::deque<EntryId> waiting;
  const Request request{.tenant = kA, .prompt_tokens = 99, .max_tokens = 1};
  for (int i = 0; i < 30; ++i) waiting.push_back(Admit(&controller, request, At(0))[0]);
  double now = 0;
  for (int i = 0; i < 20; ++i) {
    now += 0.1;
    controller.Serve(*controller.First(), At(now));
  }
  const auto wait = controller.PredictedWait(kA, 0);
  ASSERT_TRUE(wait.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*wait), 1.0, 0.1) << "1000 tokens at 1000 a second";

  Request urgent = request;
  urgent.deadline = At(now + 0.5);
  const Refusal refusal = Refused(&controller, urgent, At(now));
  EXPECT_EQ(refusal.reason, Reason::kDeadline);
  EXPECT_THAT(refusal.message, HasSubstr("the deadline is in 0.500 s"));
  EXPECT_GE(refusal.retry, absl::Milliseconds(100));
  urgent.priority = kBestPriority;
  Admit(&controller, urgent, At(now));  // it doesn't wait for the others

  Request patient = request;
  patient.deadline = At(now + 5);
  Admit(&controller, patient, At(now));
  EXPECT_EQ(Refused(&controller, patient, At(now), absl::Seconds(4.5)).reason, Reason::kDeadline);
}

TEST(AdmissionControllerTest, WaitsNoLongerThanWhatIsLeftToTheFirstToken) {
  AdmissionController controller({});
  const auto entry = Admit(&controller, {.tenant = kA, .deadline = At(10)}, At(0), absl::Seconds(3));
  EXPECT_TRUE(controller.TakeExpired(At(6.9)).empty());
  EXPECT_EQ(controller.TakeExpired(At(7)), entry);
}

TEST(AdmissionControllerTest, AFullQueueMakesRoomForWhoeverHasLess) {
  AdmissionController controller({.entries = 3});
  std::vector<EntryId> flood;
  for (int i = 0; i < 3; ++i)
    flood.push_back(Admit(&controller, {.tenant = kA, .prompt_tokens = 100}, At(i))[0]);
  EXPECT_EQ(Refused(&controller, {.tenant = kA, .prompt_tokens = 100}, At(3)).reason, Reason::kTotalQueue);
  auto decided = Decide(&controller, {.tenant = kB, .prompt_tokens = 100}, At(3));
  ASSERT_TRUE(std::holds_alternative<AdmissionController::Admitted>(decided));
  EXPECT_EQ(std::get<AdmissionController::Admitted>(decided).displaced, std::vector<EntryId>{flood[2]});
  EXPECT_EQ(controller.queue().size(), 3);
  // Two more than there is room for, even when all that may go has gone: nobody is displaced for nothing.
  EXPECT_EQ(Refused(&controller, {.tenant = kB, .choices = 3, .prompt_tokens = 1}, At(3)).reason,
            Reason::kTotalQueue);
  EXPECT_EQ(controller.queue().size(), 3);
  EXPECT_EQ(controller.queue().depth(kA).entries, 2);
}

TEST(AdmissionControllerTest, TheRetryDelayIsThatOfTheTenantsOwnLine) {
  AdmissionController controller({.entries = 503});
  controller.SetTenant(kA, {}, At(0));
  controller.SetTenant(kB, {.queue = {.entries = 2}}, At(0));
  // 100 tokens in a tenth of a second, for two seconds, while others wait.
  for (int i = 0; i < 521; ++i) {
    if (i >= 501) controller.Serve(*controller.First(), At(0.1 * (i - 500)));
    Admit(&controller, {.tenant = kA, .prompt_tokens = 99, .max_tokens = 1},
          At(i < 501 ? 0 : 0.1 * (i - 500)));
  }
  for (int i = 0; i < 2; ++i) Admit(&controller, {.tenant = kB, .prompt_tokens = 99, .max_tokens = 1}, At(2));
  // 50,000 tokens at 1,000 a second: who comes back in ten seconds is refused again.
  const Refusal flood = Refused(&controller, {.tenant = kA, .prompt_tokens = 99, .max_tokens = 1}, At(2));
  EXPECT_EQ(flood.reason, Reason::kTotalQueue);
  EXPECT_NEAR(absl::ToDoubleSeconds(flood.retry), 50, 5);
  // Two of its own, and as many of the flood's beside them.
  const Refusal small = Refused(&controller, {.tenant = kB, .prompt_tokens = 99, .max_tokens = 1}, At(2));
  EXPECT_EQ(small.reason, Reason::kTenantQueue);
  EXPECT_NEAR(absl::ToDoubleSeconds(small.retry), 0.4, 0.1);
}

TEST(AdmissionControllerTest, TheRetryDelayIsAMinuteAtMost) {
  AdmissionController controller({});
  for (int i = 0; i < 500; ++i)
    Admit(&controller, {.tenant = kA, .prompt_tokens = 99, .max_tokens = 1}, At(0));
  // 10 tokens a second: an hour and more.
  for (int i = 1; i <= 5; ++i) controller.Serve(*controller.First(), At(10 * i));
  EXPECT_EQ(controller.RetryDelay(kA), absl::Minutes(1));
  EXPECT_EQ(controller.RetryDelay(kB), absl::Milliseconds(100)) << "nothing is ahead of it";
  EXPECT_EQ(
      AdmissionController::TooLate(true, absl::Seconds(1), absl::ZeroDuration(), {.ttft = absl::Seconds(40)})
          .retry,
      absl::Seconds(39));
}

TEST(AdmissionControllerTest, WhatIsRefusedIsNotCharged) {
  AdmissionController controller({.entries = 1});
  controller.SetTenant(kA, {.requests_per_minute = 2, .prompt_tokens_per_minute = 1000}, At(0));
  const auto entry = Admit(&controller, {.tenant = kA, .prompt_tokens = 100}, At(0));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Refused(&controller, {.tenant = kA, .prompt_tokens = 100}, At(0)).reason, Reason::kTotalQueue);
  }
  EXPECT_DOUBLE_EQ(controller.LeftOver(kA, At(0)).requests, 0.5);
  EXPECT_DOUBLE_EQ(controller.LeftOver(kA, At(0)).prompt_tokens, 0.9);
  controller.Withdraw(entry[0], At(0));
  controller.Settle(entry[0], {.requests = 1}, At(0));
  EXPECT_DOUBLE_EQ(controller.LeftOver(kA, At(0)).prompt_tokens, 1);
}

TEST(AdmissionControllerTest, CheapCallsCountAsRequests) {
  AdmissionController controller({});
  controller.SetTenant(kA, {.requests_per_minute = 2}, At(0));
  EXPECT_FALSE(controller.AdmitCheapCall(kA, At(0)).has_value());
  EXPECT_FALSE(controller.AdmitCheapCall(kA, At(0)).has_value());
  const auto refusal = controller.AdmitCheapCall(kA, At(0));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Reason::kRequestRate);
}

// Whatever happens: what runs and waits is accounted for, and when all have ended nothing is left. And the
// same events give the same order.
TEST(AdmissionControllerTest, ConservesUnderRandomRequestsAndIsDeterministic) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::vector<std::vector<uint64_t>> orders;
  for (int run = 0; run < 2; ++run) {
    std::mt19937_64 random(seed);
    AdmissionController controller({.entries = 50, .tokens = 100'000, .bytes = 1 << 20});
    for (uint32_t t = 0; t < 4; ++t) {
      controller.SetTenant(TenantId(t),
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
      for (const EntryId id : open[account].waiting) controller.Withdraw(id, At(now));
      controller.Settle(EntryId(account), {.requests = 1, .prompt_tokens = 10, .output_tokens = 10}, At(now));
      open.erase(account);
    };
    for (int step = 0; step < 4000; ++step) {
      now += static_cast<double>(random() % 100) / 100;
      switch (random() % 5) {
        case 0:
        case 1: {
          const TenantId tenant(static_cast<uint32_t>(random() % 4));
          auto decided = Decide(&controller,
                                {.tenant = tenant,
                                 .choices = static_cast<int>(1 + random() % 3),
                                 .prompt_tokens = static_cast<int64_t>(random() % 5000),
                                 .max_tokens = 100,
                                 .bytes = 100,
                                 .priority = static_cast<int>(random() % 21) - 10,
                                 .deadline = At(now + static_cast<double>(random() % 200))},
                                At(now));
          if (auto* admitted = std::get_if<AdmissionController::Admitted>(&decided)) {
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
          if (const auto first = controller.First(); first.has_value() && open.size() > 3) {
            controller.Serve(*first, At(now));
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
              controller.PutBack(request.running.back(), At(now + 50), At(now));
              request.waiting.push_back(request.running.back());
              request.running.pop_back();
            } else {
              end(victim->first);
            }
          }
          break;
        default:
          for (const EntryId id : controller.TakeExpired(At(now))) {
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
      ASSERT_EQ(controller.queue().size(), static_cast<int64_t>(waiting)) << "step " << step;
      ASSERT_EQ(controller.accounts(), open.size());
      for (uint32_t t = 0; t < 4; ++t) ASSERT_EQ(controller.running(TenantId(t)), running[t]);
      for (uint32_t t = 0; t < 3; ++t) ASSERT_LE(running[t], 3 + t) << "concurrency";
    }
    while (!open.empty()) end(open.begin()->first);
    EXPECT_TRUE(controller.queue().empty());
    EXPECT_EQ(controller.queue().tokens(), 0);
    EXPECT_GT(order.size(), 100u);
    orders.push_back(std::move(order));
  }
  EXPECT_EQ(orders[0], orders[1]);
}

}  // namespace
}  // namespace baton::router::admission
