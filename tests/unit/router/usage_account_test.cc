#include "router/billing/usage_account.h"

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::router::billing {
namespace {

TEST(UsageAccountTest, NothingCountsBeforeAWorkerHasAccepted) {
  UsageAccount account(100, 1);
  EXPECT_FALSE(account.counted());
  EXPECT_EQ(account.Total(), TokenCounts());
}

TEST(UsageAccountTest, ARequestThatEndsBeforeItsFirstTokenHasItsPromptAsItWasAccepted) {
  UsageAccount account(100, 1);
  account.Accepted(0, 32);
  EXPECT_EQ(account.Total(), (TokenCounts{.decode_cached = 32, .plain = 68}));
  EXPECT_FALSE(account.charged_choice().has_value());
}

TEST(UsageAccountTest, TheWorkerThatDrewTheFirstTokenTellsOfThePrompt) {
  UsageAccount account(100, 1);
  account.Accepted(0, 32);
  account.Opened(0, {.decode_cached = 32, .prefill_cached = 16, .written_5m = 10, .written_1h = 20});
  account.Received(0, 1, 0);
  account.Accepted(0, 96);                        // it moved: the other worker has more of the prompt
  account.Finished(0, {.decode_cached = 96}, 0);  // and reports so
  EXPECT_EQ(account.Total(), (TokenCounts{.decode_cached = 32,
                                          .prefill_cached = 16,
                                          .written_5m = 10,
                                          .written_1h = 20,
                                          .plain = 22,
                                          .completion = 1}));
}

TEST(UsageAccountTest, APromptOfSeveralChoicesCountsOnceAsTheFirstTokenHadIt) {
  UsageAccount account(50, 3);
  for (int choice : {0, 1, 2}) account.Accepted(choice, choice * 16);
  account.Opened(1, {.decode_cached = 16});
  account.Received(1, 1, 1);
  account.Opened(0, {.decode_cached = 0});
  account.Received(0, 4, 0);
  EXPECT_EQ(account.charged_choice(), 1);
  EXPECT_EQ(account.Total(), (TokenCounts{.decode_cached = 16, .plain = 34, .completion = 5, .thinking = 1}));
  EXPECT_EQ(account.Choice(0), (TokenCounts{.plain = 50, .completion = 4}));
}

TEST(UsageAccountTest, ThinkingIsWhatWasSaidLastAndWithinTheAnswer) {
  UsageAccount account(1, 1);
  account.Accepted(0, 0);
  account.Received(0, 1, 0);
  account.Received(0, 1, 2);
  EXPECT_EQ(account.Total().thinking, 2);
  account.Received(0, 1, 99);
  EXPECT_EQ(account.Total().thinking, 3) << "no more than there are tokens";
  account.Finished(0, {}, 1);
  EXPECT_EQ(account.Total().thinking, 1) << "the end of the answer decides";
}

// Whatever workers report, in whatever order: the kinds of the prompt add up to it, thinking lies within the
// answer, and the answers are what came.
TEST(UsageAccountTest, AddsUpUnderAnyReports) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  const auto report = [&] {
    return UsageAccount::PromptReport{.decode_cached = draw(400) - 50,
                                      .prefill_cached = draw(400) - 50,
                                      .written_5m = draw(200) - 50,
                                      .written_1h = draw(200) - 50};
  };
  for (int round = 0; round < 2000; ++round) {
    const int choices = 1 + draw(4);
    const int64_t prompt = 1 + draw(300);
    UsageAccount account(prompt, choices);
    int64_t came = 0;
    bool accepted = false;
    for (int step = 0; step < 30; ++step) {
      const int choice = draw(choices);
      switch (draw(4)) {
        case 0:
          account.Accepted(choice, draw(400) - 50);
          accepted = true;
          break;
        case 1:
          if (accepted) account.Opened(choice, report());
          break;
        case 2:
          if (accepted) {
            const int tokens = draw(5);
            came += tokens;
            account.Received(choice, tokens, draw(60) - 5);
          }
          break;
        default:
          if (accepted) account.Finished(choice, report(), draw(60) - 5);
      }
      const TokenCounts total = account.Total();
      ASSERT_EQ(account.counted(), accepted);
      ASSERT_EQ(total.prompt(), accepted ? prompt : 0);
      ASSERT_EQ(total.completion, came);
      for (int i = -1; i < choices; ++i) {
        const TokenCounts counts = i < 0 ? total : account.Choice(i);
        for (int64_t kind : {counts.decode_cached, counts.prefill_cached, counts.written_5m,
                             counts.written_1h, counts.plain, counts.thinking}) {
          ASSERT_GE(kind, 0);
        }
        ASSERT_LE(counts.thinking, counts.completion);
        if (i >= 0) {
          ASSERT_EQ(counts.prompt(), prompt);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::router::billing
