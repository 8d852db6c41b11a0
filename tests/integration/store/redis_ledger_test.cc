// A ledger in a real server: sums add up over writers, a batch counts once, and no number is rounded.
#include "router/store/redis_ledger.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <random>

#include "tests/integration/store/redis_server.h"
#include "tests/seed.h"

namespace baton::router::store {
namespace {

using billing::LedgerKey;
using billing::LedgerSheet;
using billing::LedgerSums;

LedgerSums Sums(int64_t requests, int64_t plain, int64_t units, int64_t picos) {
  LedgerSums sums;
  sums.requests = requests;
  sums.tokens.plain = plain;
  sums.units = units;
  sums.picos = picos;
  return sums;
}

const LedgerKey kKey = {
    .day = "2026-11-23", .tenant = "search", .key = "k:1", .model = "tiny \"v2\"", .currency = "EUR"};

TEST(RedisLedgerTest, WritersAddUpAndABatchCountsOnce) {
  RedisServer server;
  auto a = *RedisLedger::Open(server.options());
  auto b = *RedisLedger::Open(server.options());
  const LedgerSheet sheet = {{kKey, Sums(2, 100, 0, 700'000'000'000)}};
  EXPECT_TRUE(a->Add("a", 1, kKey.day, sheet).ok());
  EXPECT_TRUE(a->Add("a", 1, kKey.day, sheet).ok());
  EXPECT_TRUE(b->Add("b", 1, kKey.day, sheet).ok());
  EXPECT_EQ(*a->Read("", ""), (LedgerSheet{{kKey, Sums(4, 200, 1, 400'000'000'000)}}));
  EXPECT_TRUE(a->Add("a", 2, kKey.day, sheet).ok());
  EXPECT_EQ(b->Read("", "")->at(kKey).requests, 6);
}

TEST(RedisLedgerTest, NumbersAreExactBeyondDoubles) {
  RedisServer server;
  auto ledger = *RedisLedger::Open(server.options());
  const int64_t large = (int64_t{1} << 60) + 1;
  EXPECT_TRUE(ledger->Add("a", 1, kKey.day, {{kKey, Sums(1, large, large, 999'999'999'999)}}).ok());
  EXPECT_TRUE(ledger->Add("a", 2, kKey.day, {{kKey, Sums(1, 1, 0, 1)}}).ok());
  EXPECT_EQ(ledger->Read("", "")->at(kKey), Sums(2, large + 1, large + 1, 0));
}

// The same batches in any order, some more than once, give what adding them here gives.
TEST(RedisLedgerTest, EqualsSumsMadeHere) {
  RedisServer server;
  auto ledger = *RedisLedger::Open(server.options());
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  LedgerSheet expected;
  std::map<std::string, int64_t> batches;
  for (int i = 0; i < 200; ++i) {
    LedgerSheet sheet;
    for (uint64_t row = 0; row <= random() % 4; ++row) {
      LedgerKey key = kKey;
      key.day = "2026-11-2" + std::to_string(random() % 3);
      key.tenant = std::string(1, static_cast<char>('a' + random() % 3));
      sheet[key].Add(Sums(1, static_cast<int64_t>(random() % 5000), 0,
                          static_cast<int64_t>(random() % 1'000'000'000'000)));
    }
    const std::string writer = random() % 2 == 0 ? "a" : "b";
    const int64_t batch = ++batches[writer];
    for (uint64_t times = 0; times <= random() % 3; ++times) {
      ASSERT_TRUE(ledger->Add(writer, batch, kKey.day, sheet).ok());
    }
    for (const auto& [key, sums] : sheet) expected[key].Add(sums);
  }
  EXPECT_EQ(*ledger->Read("", ""), expected);
  const LedgerSheet day = *ledger->Read("2026-11-21", "2026-11-21");
  for (const auto& [key, sums] : day) EXPECT_EQ(key.day, "2026-11-21");
  EXPECT_FALSE(day.empty());
}

TEST(RedisLedgerTest, AServerThatIsAwayOrFullRefusesABatchWhole) {
  RedisServer server;
  auto ledger = *RedisLedger::Open(server.options());
  const LedgerSheet sheet = {{kKey, Sums(1, 10, 0, 5)}};
  server.Ask({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_TRUE(absl::IsResourceExhausted(ledger->Add("a", 1, kKey.day, sheet)));
  server.Ask({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(ledger->Read("", "")->empty());
  server.Signal(SIGKILL);
  server.AwaitEnd();
  EXPECT_TRUE(absl::IsUnavailable(ledger->Add("a", 1, kKey.day, sheet)));
  auto later = RedisLedger::Open(server.options());  // it comes when it comes
  ASSERT_TRUE(later.ok()) << later.status();
  server.Start();
  EXPECT_TRUE((*later)->Add("a", 1, kKey.day, sheet).ok());
  EXPECT_EQ(*ledger->Read("", ""), sheet);
}

// Two routers record parts of the same answers at once, each as far as it knows.
TEST(RedisLedgerTest, WhatSeveralCallsKnowOfAnAnswerIsAddedOnce) {
  RedisServer server;
  constexpr int kAnswers = 20, kTokens = 30;
  const auto use = [](int answer, int64_t tokens) {
    billing::AnswerUse one{.answer = "t/" + std::to_string(answer), .key = kKey, .prompt = {}, .rest = {}};
    one.prompt.tokens.plain = 100;
    one.prompt.AddCost(7);
    one.rest.tokens.completion = tokens;
    one.rest.AddCost(tokens * 400'000'000'000);
    return one;
  };
  std::vector<std::thread> routers;
  for (const std::string& writer : {std::string("a"), std::string("b")}) {
    routers.emplace_back([&server, &use, writer] {
      auto ledger = *RedisLedger::Open(server.options());
      int64_t batch = 0;
      for (int64_t tokens = 1; tokens <= kTokens; ++tokens) {
        std::vector<billing::AnswerUse> uses;
        for (int answer = 0; answer < kAnswers; ++answer) uses.push_back(use(answer, tokens));
        ++batch;
        while (!ledger->Add(writer, batch, kKey.day, {}, uses).ok()) {
        }
      }
    });
  }
  for (std::thread& router : routers) router.join();
  LedgerSums expected = Sums(kAnswers, int64_t{100} * kAnswers, 0, 0);
  expected.tokens.completion = int64_t{kAnswers} * kTokens;
  expected.AddCost(int64_t{7} * kAnswers);
  expected.AddCost(int64_t{400'000'000'000} * kAnswers * kTokens);
  EXPECT_EQ((*RedisLedger::Open(server.options()))->Read("", "")->at(kKey), expected);
}

}  // namespace
}  // namespace baton::router::store
