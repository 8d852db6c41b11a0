// The drafters alone, the store of past answers, and the controller.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "decode_service/drafting/controller.h"
#include "decode_service/drafting/ngram_drafter.h"
#include "decode_service/drafting/past_answers.h"
#include "decode_service/scheduler.h"
#include "engine/kernels/verify_rows.h"

namespace baton::decode_service::drafting {
namespace {

std::vector<TokenId> Tokens(std::initializer_list<int> ids) {
  std::vector<TokenId> tokens;
  for (const int id : ids) tokens.emplace_back(id);
  return tokens;
}

std::vector<TokenId> Range(int from, int to) {
  std::vector<TokenId> tokens;
  for (int id = from; id < to; ++id) tokens.emplace_back(id);
  return tokens;
}

Draft Guess(Drafter& drafter, const std::vector<TokenId>& tokens, size_t most) {
  Draft draft;
  drafter.Guess(tokens, most, draft);
  EXPECT_EQ(draft.tokens.size(), draft.survival.size());
  EXPECT_TRUE(std::ranges::is_sorted(draft.survival, std::greater<>()));
  return draft;
}

// Kernels treat so many rows of a sequence as decode rows.
TEST(DraftTest, TheLongestIsVerifiedByDecodeRows) {
  EXPECT_GE(kernels::kMaxVerifyRows, static_cast<int64_t>(kMaxDraft) + 1);
}

TEST(NgramIndexTest, TheLongestEndOfTheContextIsFound) {
  NgramIndex index;
  const auto text = Tokens({1, 2, 3, 4, 5, 9, 3, 4, 7, 8});
  index.Extend(text, 100);
  const auto two = index.Find(text, Tokens({3, 4}));
  EXPECT_EQ(two.length, 2u);
  EXPECT_EQ(two.next, 8u) << "the latest place";
  const auto four = index.Find(text, Tokens({1, 2, 3, 4}));
  EXPECT_EQ(four.length, 4u);
  EXPECT_EQ(four.next, 4u);
  EXPECT_EQ(index.Find(text, Tokens({1, 2, 3, 4}), 4).length, 0u) << "none is longer";
  EXPECT_EQ(index.Find(text, Tokens({7, 8})).length, 0u) << "nothing follows it";
  EXPECT_EQ(index.Find(text, Tokens({8})).length, 0u);
}

TEST(NgramIndexTest, MemoryIsLinearAndATextMayComeInPieces) {
  NgramIndex index, whole;
  std::vector<TokenId> text;
  for (int i = 0; i < 20'000; ++i) text.emplace_back(i * 7919 % 5003);
  for (int i = 0; i < 30; ++i) index.Extend(text, 1000);
  whole.Extend(text, std::numeric_limits<size_t>::max());
  EXPECT_LE(index.bytes(), 3 * sizeof(uint32_t) * 4 * text.size());
  for (size_t end = 8; end < text.size(); end += 97) {
    const auto context = std::span(text).first(end);
    EXPECT_EQ(index.Find(text, context).next, whole.Find(text, context).next);
  }
}

TEST(NgramDrafterTest, ACopyIsFollowedAndTrustedTheMoreTheLongerItAgrees) {
  NgramDrafter drafter;
  std::vector<TokenId> tokens = Range(100, 160);
  drafter.Follow(tokens);
  EXPECT_TRUE(Guess(drafter, tokens, 8).tokens.empty());
  tokens.emplace_back(100);
  drafter.Follow(tokens);
  EXPECT_TRUE(Guess(drafter, tokens, 8).tokens.empty()) << "one token is no match";
  tokens.emplace_back(101);
  drafter.Follow(tokens);
  const Draft first = Guess(drafter, tokens, 8);
  EXPECT_EQ(first.tokens, Range(102, 110));
  for (int id = 102; id < 140; ++id) {
    tokens.emplace_back(id);
    drafter.Follow(tokens);
  }
  const Draft later = Guess(drafter, tokens, 8);
  EXPECT_EQ(later.tokens, Range(140, 148));
  EXPECT_GT(later.Expected(), 2 * first.Expected());
  tokens.emplace_back(7);
  drafter.Follow(tokens);
  EXPECT_TRUE(Guess(drafter, tokens, 8).tokens.empty()) << "the copy has ended";
}

TEST(NgramDrafterTest, ATextThatRepeatsItselfIsGoneOnWith) {
  NgramDrafter drafter;
  auto tokens = Tokens({1, 2, 3, 1, 2, 3, 1, 2});
  drafter.Follow(tokens);
  EXPECT_EQ(Guess(drafter, tokens, 7).tokens, Tokens({3, 1, 2, 3, 1, 2, 3}));
}

// A guess that is always wrong soon has a low chance, without a row spent on it.
TEST(NgramDrafterTest, ItLearnsFromTokensThatItDidNotDraft) {
  NgramDrafter drafter;
  std::vector<TokenId> tokens;
  for (int i = 0; i < 200; ++i) {  // the same two tokens, and another one each time
    for (const int id : {1, 2, 10 + i}) {
      tokens.emplace_back(id);
      drafter.Follow(tokens);
    }
  }
  tokens.emplace_back(1);
  drafter.Follow(tokens);
  tokens.emplace_back(2);
  drafter.Follow(tokens);
  const Draft draft = Guess(drafter, tokens, 4);
  ASSERT_FALSE(draft.tokens.empty());
  EXPECT_LT(draft.survival.front(), 0.1);
}

TEST(PastAnswersTest, OfTheSameSaltOnly) {
  PastAnswers past;
  const absl::Time now = absl::UnixEpoch();
  past.Add("a", Range(0, 10), Range(500, 540), now);
  EXPECT_EQ(past.DrafterFor("b", now), nullptr);
  past.Add("b", Range(0, 10), Range(700, 740), now);
  for (const auto& [salt, first] : {std::pair{"a", 500}, std::pair{"b", 700}}) {
    const auto drafter = past.DrafterFor(salt, now);
    ASSERT_NE(drafter, nullptr);
    std::vector<TokenId> tokens = Range(0, 10);
    drafter->Follow(tokens);
    EXPECT_EQ(Guess(*drafter, tokens, 4).tokens, Range(first, first + 4)) << salt;
    const auto others = Range(first == 500 ? 710 : 510, first == 500 ? 720 : 520);
    tokens.insert(tokens.end(), others.begin(), others.end());
    drafter->Follow(tokens);
    EXPECT_TRUE(Guess(*drafter, tokens, 4).tokens.empty()) << "another tenant's words";
  }
}

TEST(PastAnswersTest, ADraftEndsWithItsAnswer) {
  PastAnswers past;
  const absl::Time now = absl::UnixEpoch();
  past.Add("", {}, Range(500, 520), now);
  past.Add("", {}, Range(600, 620), now);
  const auto drafter = past.DrafterFor("", now);
  const auto tokens = Range(510, 518);
  drafter->Follow(tokens);
  EXPECT_EQ(Guess(*drafter, tokens, 10).tokens, Range(518, 520));
}

TEST(PastAnswersTest, BytesAndAgeAreBounded) {
  PastAnswers past({.bytes = 200'000, .tokens = 4096, .age = absl::Minutes(30)});
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 400; ++i) {
    now += absl::Seconds(1);
    past.Add(std::to_string(i % 40), Range(0, 3), Range(i, i + 500), now);
    EXPECT_LE(past.bytes(), 200'000u);
  }
  EXPECT_GT(past.salts(), 0u);
  EXPECT_EQ(past.DrafterFor("1", now), nullptr) << "its place was taken";
  EXPECT_NE(past.DrafterFor("39", now), nullptr);
  EXPECT_EQ(past.DrafterFor("39", now + absl::Minutes(31)), nullptr);
  past.ForgetOld(now + absl::Minutes(29));
  EXPECT_GT(past.salts(), 0u);
  past.ForgetOld(now + absl::Minutes(31));
  EXPECT_EQ(past.salts(), 0u);
  EXPECT_EQ(past.bytes(), 0u);
}

TEST(PastAnswersTest, AnAnswerInProgressKeepsNothingThatIsLetGo) {
  PastAnswers past({.bytes = 20'000, .tokens = 4096, .age = absl::Minutes(30)});
  const absl::Time now = absl::UnixEpoch();
  past.Add("a", {}, Range(500, 540), now);
  const auto drafter = past.DrafterFor("a", now);
  std::vector<TokenId> tokens = Range(500, 508);
  drafter->Follow(tokens);
  EXPECT_EQ(Guess(*drafter, tokens, 4).tokens, Range(508, 512));
  for (int i = 0; i < 10; ++i) {
    past.Add(std::to_string(i), {}, Range(1000, 1400), now + absl::Seconds(1));
  }
  ASSERT_EQ(past.DrafterFor("a", now), nullptr);
  EXPECT_TRUE(Guess(*drafter, tokens, 4).tokens.empty()) << "the text has gone";
  tokens.emplace_back(508);
  drafter->Follow(tokens);
  EXPECT_TRUE(Guess(*drafter, tokens, 4).tokens.empty());
}

TEST(PastAnswersTest, TheOldestGoesFirst) {
  PastAnswers past({.bytes = size_t{1} << 30, .tokens = 1000, .age = absl::Minutes(30)});
  const absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 10; ++i) past.Add("", {}, Range(1000 * i, 1000 * i + 600), now);
  const auto drafter = past.DrafterFor("", now);
  const auto last = Range(9000, 9010), first = Range(0, 10);
  drafter->Follow(last);
  EXPECT_FALSE(Guess(*drafter, last, 4).tokens.empty());
  const auto other = past.DrafterFor("", now);
  other->Follow(first);
  EXPECT_TRUE(Guess(*other, first, 4).tokens.empty());
}

// 2 cores, a model of 304 MB: 5.6 ms for one row, 15.5 for 16.
forecast::StepForecast Steps(double base, double row) {
  return forecast::StepForecast({.base = base, .sequence = row, .context = 0, .token = row, .pair = 0});
}

std::vector<double> Chain(double chance, int tokens) {
  std::vector<double> survival;
  double product = 1;
  for (int i = 0; i < tokens; ++i) survival.push_back(product *= chance);
  return survival;
}

TEST(ControllerTest, RowsAreWorthWhatTheySave) {
  const auto steps = Steps(5e-3, 0.6e-3);
  const auto sure = Chain(0.97, 24), even = Chain(0.5, 24), poor = Chain(0.05, 24);
  const auto granted = [&](const std::vector<double>& survival) {
    const std::vector<Offer> offers = {{.survival = survival}};
    return GrantRows(offers, {.running = 1}, steps, {.rows = 100}).front();
  };
  EXPECT_GE(granted(sure), 20);
  EXPECT_GE(granted(even), 2);
  EXPECT_LE(granted(even), 4);
  EXPECT_EQ(granted(poor), 0);
}

TEST(ControllerTest, NothingWhereStepsAreAsLongAsTheirRows) {
  const auto steps = Steps(1e-3, 1e-3);
  const auto likely = Chain(0.85, 24);
  std::vector<Offer> offers(16, {.survival = likely});
  const auto granted = GrantRows(offers, {.running = 16}, steps, {.rows = 500});
  EXPECT_EQ(std::accumulate(granted.begin(), granted.end(), int64_t{0}), 0);
  // Alone, each of them is worth it.
  offers.resize(1);
  EXPECT_GT(GrantRows(offers, {.running = 1}, steps, {.rows = 500}).front(), 0);
}

TEST(ControllerTest, TheLikeliestFirstAndNoMoreThanTheBudget) {
  const auto steps = Steps(20e-3, 0.1e-3);
  const auto sure = Chain(0.95, 24), even = Chain(0.5, 24);
  const std::vector<Offer> offers = {{.survival = even}, {.survival = sure}, {.survival = {}}};
  const auto granted = GrantRows(offers, {.running = 3}, steps, {.rows = 8});
  EXPECT_EQ(granted, (std::vector<int64_t>{0, 8, 0}));
  EXPECT_EQ(GrantRows(offers, {.running = 3}, steps, {.rows = 0}), (std::vector<int64_t>{0, 0, 0}));
}

TEST(ControllerTest, AnAnswerWithoutDraftsKeepsItsPace) {
  const auto steps = Steps(20e-3, 1e-3);
  const auto sure = Chain(0.97, 24);
  const auto rows = [&](int64_t running, size_t offered, const Bounds& bounds) {
    const std::vector<Offer> offers(offered, {.survival = sure});
    const auto granted = GrantRows(offers, {.running = running}, steps, bounds);
    return std::accumulate(granted.begin(), granted.end(), int64_t{0});
  };
  // One of two answers is drafted for: a step of two takes 22 ms, and each drafted row 1 ms.
  EXPECT_GE(rows(2, 1, {.rows = 100}), 20);
  EXPECT_EQ(rows(2, 1, {.rows = 100, .seconds = 30.5e-3}), 8) << "the other one waits for the whole step";
  EXPECT_EQ(rows(2, 1, {.rows = 100, .seconds = 20e-3}), 0);
  // All that wait for the step gain by it.
  EXPECT_EQ(rows(2, 2, {.rows = 100, .seconds = 20e-3}), rows(2, 2, {.rows = 100}));
  EXPECT_EQ(rows(1, 1, {.rows = 100, .seconds = 1e-3}), rows(1, 1, {.rows = 100}));
  // Where a step is longer than that in any case, drafts may not slow the slowest answer.
  EXPECT_GT(rows(2, 2, {.rows = 100, .seconds = 5e-3}), 20);
  EXPECT_EQ(rows(2, 1, {.rows = 100, .seconds = 5e-3}), 0);
  // Others wait that no offer tells of.
  EXPECT_EQ(rows(2, 2, {.rows = 100, .seconds = 26.5e-3, .by_token = false}), 4);
  EXPECT_EQ(rows(2, 1, {.rows = 100, .seconds = 30.5e-3, .spent = 4e-3}), 4) << "a model has drafted";
}

// The seconds of drafting are seconds that others wait.
TEST(ControllerTest, DraftsOfAModelKeepThePace) {
  const auto steps = Steps(20e-3, 1e-3), drafts = Steps(2e-3, 0);
  const auto sure = Chain(0.97, 24);
  const std::vector<ModelOffer> offers = {{.survival = sure}};
  EXPECT_GE(GrantDrafts(offers, {.running = 2}, steps, drafts, {.rows = 100}).front(), 6);
  EXPECT_EQ(GrantDrafts(offers, {.running = 2}, steps, drafts, {.rows = 100, .seconds = 31.5e-3}).front(), 3);
  EXPECT_EQ(GrantDrafts(offers, {.running = 2}, steps, drafts, {.rows = 100, .seconds = 22e-3}).front(), 0);
  // As many sequences as have room: four drafted for would be best, and two keep the pace of the fifth.
  const std::vector<ModelOffer> four(4, {.survival = sure});
  const auto granted = GrantDrafts(four, {.running = 5}, steps, drafts, {.rows = 100, .seconds = 29.5e-3});
  EXPECT_EQ(granted, (std::vector<int64_t>{1, 1, 0, 0}));
}

// Steps that take four rows at once: one more beyond a multiple of four takes as long as four.
double Kneed(int64_t rows) { return 4e-3 + 4e-3 * static_cast<double>((rows + 3) / 4); }

TEST(ControllerTest, WhereStepsTakeAStepUpNothingIsSpentInFrontOfIt) {
  forecast::StepForecast steps({.base = 5e-3, .sequence = 0.7e-3, .context = 0, .token = 1e-3, .pair = 0});
  for (int round = 0; round < 20; ++round) {
    for (int64_t rows = 1; rows <= 24; ++rows) {
      steps.Observe({.running = std::min<int64_t>(rows, 16), .drafted = rows - std::min<int64_t>(rows, 16)},
                    Kneed(rows));
    }
  }
  // By the steps' true times, granted rows are never slower than none.
  for (const double chance : {0.3, 0.5, 0.7, 0.9}) {
    const auto chain = Chain(chance, 24);
    for (const int64_t running : {1, 2, 3, 4, 5, 8, 12, 15, 16}) {
      const std::vector<Offer> offers(static_cast<size_t>(running), {.survival = chain});
      const auto granted = GrantRows(offers, {.running = running}, steps, {.rows = 24 - running});
      const int64_t rows = std::accumulate(granted.begin(), granted.end(), int64_t{0});
      auto tokens = static_cast<double>(running);
      for (const int64_t of : granted) {
        tokens += std::accumulate(chain.begin(), chain.begin() + of, 0.0);
      }
      const double with = tokens / Kneed(running + rows),
                   without = static_cast<double>(running) / Kneed(running);
      EXPECT_GE(with, 0.99 * without) << chance << ", " << running << " run, " << rows << " granted";
      if (running == 1 && chance == 0.5) {
        EXPECT_EQ(rows, 3) << "up to the end of the tile";
      }
    }
  }
}

TEST(ControllerTest, AModelDraftsWhereItsSecondsAreWorthIt) {
  const auto steps = Steps(5e-3, 0.6e-3);
  const auto likely = Chain(0.8, 24), poor = Chain(0.15, 24);
  const auto granted = [&](const std::vector<double>& survival, double draft_step, int64_t have = 0) {
    const std::vector<ModelOffer> offers = {{.survival = survival, .have = have}};
    return GrantDrafts(offers, {.running = 1}, steps, Steps(draft_step, 0), {.rows = 100}).front();
  };
  EXPECT_GE(granted(likely, 0.3e-3), 4);
  EXPECT_GE(granted(likely, 1.5e-3), 1);
  EXPECT_LT(granted(likely, 1.5e-3), granted(likely, 0.3e-3));
  EXPECT_EQ(granted(likely, 5e-3), 0) << "a draft step is as dear as the model's own";
  EXPECT_GE(granted(likely, 5e-3, 2), 2) << "what is drafted already costs nothing more";
  EXPECT_EQ(granted(poor, 1.5e-3), 0);
}

TEST(ControllerTest, SequencesAreDraftedForTogether) {
  const auto steps = Steps(5e-3, 0.2e-3), drafts = Steps(1.5e-3, 0.05e-3);
  const auto likely = Chain(0.7, 24), poor = Chain(0.02, 24);
  std::vector<ModelOffer> offers(1, {.survival = likely});
  EXPECT_EQ(GrantDrafts(offers, {.running = 1}, steps, drafts, {.rows = 100}).front(), 2);
  offers.resize(4, {.survival = likely});
  offers.push_back({.survival = poor});
  const auto granted = GrantDrafts(offers, {.running = 5}, steps, drafts, {.rows = 100});
  EXPECT_GE(granted[0], 1);
  EXPECT_EQ(granted[0], granted[3]);
  EXPECT_EQ(granted[4], 0) << "its row is worth nothing";
  const auto few = GrantDrafts(offers, {.running = 5}, steps, drafts, {.rows = 3});
  EXPECT_LE(std::accumulate(few.begin(), few.end(), int64_t{0}), 3);
}

TEST(ControllerTest, WhatADraftModelIsWorth) {
  const auto steps = Steps(5e-3, 0.6e-3), drafts = Steps(0.3e-3, 0.03e-3);
  const auto likely = Chain(0.8, 24), poor = Chain(0.05, 24);
  const ModelGain alone = GainOf({.survival = likely}, {.running = 1}, steps, drafts, {.rows = 100});
  EXPECT_GT(alone.tokens, 0.2);
  EXPECT_NEAR(alone.seconds, 5.6e-3, 1e-6);
  // Among many, one sequence's drafts give less, and others wait for each of its rows.
  EXPECT_LT(GainOf({.survival = likely}, {.running = 16}, steps, drafts, {.rows = 100}).tokens, alone.tokens);
  EXPECT_EQ(GainOf({.survival = poor}, {.running = 1}, steps, drafts, {.rows = 100}).tokens, 0);
}

TEST(SurvivalTest, AnAnswerBeginsWithWhatOthersHaveTaught) {
  Survival all({0.6, 0.6, 0.6, 0.6, 0.6});
  for (int i = 0; i < 40; ++i) all.Observe(0, false);
  Survival one(&all);
  EXPECT_LT(one.Chance(0), 0.1);
  for (int i = 0; i < 10; ++i) one.Observe(0, true);
  EXPECT_GT(one.Chance(0), 0.7);
  for (int i = 0; i < 500; ++i) one.Fade(0.98);
  EXPECT_NEAR(one.Chance(0), all.Chance(0), 0.05);
}

TEST(SpeculationFlagTest, NamesMeanWhatTheySay) {
  EXPECT_EQ(SpeculationNames(),
            (std::vector<std::string>{"ngram", "past-answers", "grammar", "draft-model", "self"}));
  const Speculation off = SpeculationOf("off"), all = SpeculationOf("auto"),
                    past = SpeculationOf("past-answers");
  EXPECT_FALSE(off.ngram || off.past_answers || off.grammar);
  EXPECT_TRUE(all.ngram && all.past_answers && all.grammar);
  EXPECT_TRUE(past.past_answers && !past.ngram && !past.grammar);
  EXPECT_TRUE(all.draft_model && all.self && !past.draft_model && !past.self);
  EXPECT_TRUE(SpeculationOf("draft-model").draft_model && SpeculationOf("self").self);
  // All but past answers.
  const Speculation some = SpeculationOf("ngram,grammar,draft-model");
  EXPECT_TRUE(some.ngram && some.grammar && some.draft_model);
  EXPECT_FALSE(some.past_answers || some.self);
}

}  // namespace
}  // namespace baton::decode_service::drafting
