// A backend that draws gives tokens in place of logits, row by row as asked; where it can't, logits come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/engine.h"
#include "engine/solo.h"

namespace baton::engine {
namespace {

std::unique_ptr<Engine> LoadForDraws(const std::string& backend, int tp) {
  auto engine = Engine::Load({.model_folder = BATON_SOURCE_DIR "/tests/golden/models/data/llama-mha",
                              .backend = backend,
                              .threads = tp,
                              .tp = tp,
                              .kv_bytes = 1 << 20});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Three sequences of five tokens each. Those with parameters ask for a token.
Batch MakeBatch(const std::vector<TokenId>& tokens, const std::vector<BlockId>& blocks,
                const std::vector<std::optional<sampling::Params>>& params) {
  Batch batch;
  for (size_t s = 0; s < params.size(); ++s) {
    batch.Add({.tokens = std::span(tokens).subspan(s, 5),
               .blocks = std::span(blocks).subspan(s, 1),
               .logit_rows = 1});
    if (params[s].has_value()) batch.Draw(*params[s], 5);  // penalties without a slot
  }
  return batch;
}

// On so many ranks.
class DrawTest : public testing::TestWithParam<int> {
 protected:
  const std::vector<TokenId> tokens_ = {TokenId(3), TokenId(14), TokenId(15), TokenId(9),
                                        TokenId(2), TokenId(6),  TokenId(5)};
  const sampling::Params plain_ = {.temperature = 1.5f, .top_k = 50, .top_p = 0.95f, .seed = 42};
  const sampling::Params penalised_ = {.repetition_penalty = 1.3f};
};

TEST_P(DrawTest, TokensWhereTheyWereAskedForLogitsElsewhere) {
  const auto engine = LoadForDraws("reference", GetParam());
  ASSERT_NE(engine, nullptr);
  const auto blocks = *engine->pool().Allocate(3);
  const auto vocabulary = static_cast<size_t>(engine->config().vocabulary);
  const StepResult all = engine->Forward(MakeBatch(tokens_, blocks, {{}, {}, {}}), [](int) {});
  const std::vector<float> logits(all.logits().begin(), all.logits().end());
  for (int64_t s = 0; s < 3; ++s) EXPECT_FALSE(all.drawn(s).has_value());

  const StepResult rest = engine->Forward(MakeBatch(tokens_, blocks, {{}, plain_, penalised_}), [](int) {});
  EXPECT_FALSE(rest.drawn(0).has_value()) << "no draw was asked for";
  EXPECT_FALSE(rest.drawn(2).has_value()) << "penalties, and no slot that counts";
  for (size_t s : {0u, 2u}) {
    EXPECT_TRUE(std::ranges::equal(rest.logits(static_cast<int64_t>(s)),
                                   std::span(logits).subspan(s * vocabulary, vocabulary)));
  }
  ASSERT_TRUE(rest.drawn(1).has_value());
  sampling::Sampler sampler;
  const auto expected =
      sampler.Sample(std::span(logits).subspan(vocabulary, vocabulary), plain_, {}, 5, std::nullopt);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(rest.drawn(1), expected->token);
  engine->pool().Release(blocks);
}

// Each sequence has a mask of its own, or none.
TEST_P(DrawTest, DrawsNoTokenThatItsMaskForbids) {
  const auto engine = LoadForDraws("reference", GetParam());
  ASSERT_NE(engine, nullptr);
  const auto blocks = *engine->pool().Allocate(3);
  const auto vocabulary = static_cast<size_t>(engine->config().vocabulary);
  const StepResult all = engine->Forward(MakeBatch(tokens_, blocks, {{}, {}, {}}), [](int) {});
  const std::vector<float> logits(all.logits().begin(), all.logits().end());
  const std::vector<std::vector<uint32_t>> masks = {{0x00F00000, 0x0000F0F0}, {}, {0, 0, 0x40}};
  const std::vector<sampling::Params> params = {plain_, plain_, {.temperature = 0}};
  Batch batch;
  for (size_t s = 0; s < 3; ++s) {
    batch.Add({.tokens = std::span(tokens_).subspan(s, 5),
               .blocks = std::span(blocks).subspan(s, 1),
               .logit_rows = 1});
    batch.Draw(params[s], 5, {}, masks[s]);
  }
  const StepResult result = engine->Forward(batch, [](int) {});
  sampling::Sampler sampler;
  for (size_t s = 0; s < 3; ++s) {
    const auto expected = sampler.Sample(std::span(logits).subspan(s * vocabulary, vocabulary), params[s], {},
                                         5, std::nullopt, std::nullopt, masks[s]);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(result.drawn(static_cast<int64_t>(s)), expected->token) << "sequence " << s;
  }
  EXPECT_EQ(result.drawn(2), TokenId(70)) << "the only one";
  engine->pool().Release(blocks);
}

// Three steps, each launched before the one before it has finished, against the same one by one.
TEST_P(DrawTest, AStepGoesOnFromFutureTokens) {
  const auto engine = LoadForDraws("reference", GetParam());
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->overlaps());
  const auto blocks = *engine->pool().Allocate(2);
  const std::vector<std::optional<sampling::Params>> both = {plain_, sampling::Params{.temperature = 0}};
  std::vector<std::vector<TokenId>> expected(2);
  for (int64_t step = 0; step < 3; ++step) {
    Batch batch;
    for (size_t s = 0; s < 2; ++s) {
      const auto own = std::span(blocks).subspan(s, 1);
      if (step == 0) {
        batch.Add({.tokens = std::span(tokens_).subspan(s, 5), .blocks = own, .logit_rows = 1});
      } else {
        batch.Add({.tokens = std::span(expected[s]).last(1),
                   .first_position = 4 + step,
                   .blocks = own,
                   .logit_rows = 1});
      }
      batch.Draw(*both[s], 5 + step);
    }
    const StepResult result = engine->Forward(batch, [](int) {});
    for (size_t s = 0; s < 2; ++s) expected[s].push_back(*result.drawn(static_cast<int64_t>(s)));
  }

  engine->Launch(MakeBatch(tokens_, blocks, both), [](int) {});
  for (int64_t step = 1; step <= 3; ++step) {
    if (step < 3) {
      Batch batch;  // the sequences change places
      for (size_t s : step == 1 ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1}) {
        batch.AddFuture(static_cast<int32_t>(step == 1 ? s : 1 - s), 4 + step,
                        std::span(blocks).subspan(s, 1));
        batch.Draw(*both[s], 5 + step);
      }
      EXPECT_TRUE(batch.draws_all());
      engine->Launch(batch, [](int) {});
    }
    const StepResult result = engine->Finish();
    EXPECT_EQ(result.logits().empty(), step < 3) << "a step that was followed has no logits";
    for (size_t s = 0; s < 2; ++s) {
      const auto place = static_cast<int64_t>(step == 2 ? 1 - s : s);
      EXPECT_EQ(result.drawn(place), expected[s][static_cast<size_t>(step - 1)]) << "step " << step;
    }
  }
  engine->pool().Release(blocks);
}

// Penalties and biases, on a sequence whose last token is a future token; its slot is filled once.
TEST_P(DrawTest, CountsWhatASequenceHasSeen) {
  const auto engine = LoadForDraws("reference", GetParam());
  ASSERT_NE(engine, nullptr);
  const auto blocks = *engine->pool().Allocate(2);
  const sampling::Params params = {.temperature = 0,
                                   .repetition_penalty = 1.2f,
                                   .presence_penalty = 0.5f,
                                   .frequency_penalty = 0.8f,
                                   .logit_bias = {{TokenId(7), 3.0f}, {TokenId(60), -4.0f}}};
  constexpr int64_t kTokens = 12;
  const auto expected = GenerateSolo(*engine, tokens_, params, kTokens, {}, 0);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto without = GenerateSolo(*engine, tokens_, {.temperature = 0}, kTokens, {}, 0);
  ASSERT_NE(expected->tokens, without->tokens) << "the penalties change nothing";

  const auto slot = engine->TakePenaltySlot();
  ASSERT_NE(slot, nullptr);
  std::vector<TokenId> tokens = tokens_;
  const auto prompt = std::ssize(tokens_);
  for (int64_t step = 0; step <= kTokens; ++step) {
    if (step < kTokens) {
      Batch batch;
      step == 0 ? batch.Add({.tokens = tokens, .blocks = blocks, .logit_rows = 1})
                : batch.AddFuture(0, prompt + step - 1, blocks);
      batch.Draw(params, prompt + step, {.slot = slot.get(), .tokens = tokens, .prompt_tokens = prompt});
      EXPECT_EQ(batch.step_draws().rows.size(), 1u);
      EXPECT_EQ(batch.step_draws().seen.size(), step == 0 ? 1u : 0u);
      engine->Launch(batch, [](int) {});
    }
    if (step == 0) continue;
    tokens.push_back(*engine->Finish().drawn(0));
  }
  EXPECT_EQ(std::vector<TokenId>(tokens.begin() + prompt, tokens.end()), expected->tokens);
  engine->pool().Release(blocks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DrawTest, testing::Values(1, 2), testing::PrintToStringParamName());

TEST(BatchDrawTest, ASlotThatLacksTokensIsFilledAnewOrNotUsed) {
  PenaltySlots slots([](int32_t) { return true; });
  const auto slot = slots.Take();
  const sampling::Params params = {.presence_penalty = 1};
  const std::vector<TokenId> tokens = {TokenId(4), TokenId(5), TokenId(6)};
  const std::vector<BlockId> blocks = {BlockId(0)};
  // The batch's counts for the token at `position` of a sequence of so many known tokens.
  struct Outcome {
    size_t draws, filled;
    bool operator==(const Outcome&) const = default;
  };
  const auto draw = [&](size_t known, int64_t position, PenaltySlot* own) {
    Batch batch;
    batch.Add({.tokens = std::span(tokens).first(1),
               .first_position = position - 1,
               .blocks = blocks,
               .logit_rows = 1});
    batch.Draw(params, position, {.slot = own, .tokens = std::span(tokens).first(known), .prompt_tokens = 1});
    const kernels::StepDraws draws = batch.step_draws();
    if (!draws.seen.empty()) {
      EXPECT_EQ(draws.seen[0].slot, own->index());
      EXPECT_EQ(draws.seen[0].prompt.size(), 1u);
      EXPECT_EQ(draws.seen[0].output.size(), known - 1);
    }
    return Outcome{draws.rows.size(), draws.seen.size()};
  };
  EXPECT_EQ(draw(2, 2, nullptr), (Outcome{0, 0})) << "the backend does not count";
  EXPECT_EQ(draw(1, 2, slot.get()), (Outcome{0, 0})) << "a future token, and an empty slot";
  EXPECT_EQ(draw(2, 2, slot.get()), (Outcome{1, 1}));
  EXPECT_EQ(draw(2, 3, slot.get()), (Outcome{1, 0})) << "the draw before is counted";
  EXPECT_EQ(draw(3, 3, slot.get()), (Outcome{1, 1})) << "a draw that came to nothing";
}

TEST(PenaltySlotsTest, GrowAsLongAsThereIsMemory) {
  std::vector<int32_t> asked;
  PenaltySlots slots([&asked](int32_t wanted) {
    asked.push_back(wanted);
    return wanted < 64;
  });
  std::vector<std::unique_ptr<PenaltySlot>> taken;
  std::set<int32_t> indices;
  while (auto slot = slots.Take()) {
    indices.insert(slot->index());
    taken.push_back(std::move(slot));
  }
  EXPECT_THAT(asked, testing::ElementsAre(16, 32, 64));
  EXPECT_EQ(taken.size(), 32u);
  EXPECT_EQ(indices.size(), 32u);
  EXPECT_EQ(*indices.rbegin(), 31);
  const int32_t back = taken[9]->index();
  taken[9] = nullptr;
  const auto again = slots.Take();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->index(), back);
  EXPECT_EQ(slots.Take(), nullptr);
  EXPECT_EQ(asked.size(), 3u) << "what has no memory is not asked again";
}

TEST(NoDrawTest, LogitsFromABackendThatDoesNotDraw) {
  const auto engine = LoadForDraws("cpu", 1);
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->overlaps());
  EXPECT_EQ(engine->TakePenaltySlot(), nullptr);
  const std::vector<TokenId> tokens(5, TokenId(9));
  const auto blocks = *engine->pool().Allocate(1);
  const auto asked = engine->Forward(MakeBatch(tokens, blocks, {{}}), [](int) {}).logits(0);
  const std::vector<float> logits(asked.begin(), asked.end());
  const StepResult again =
      engine->Forward(MakeBatch(tokens, blocks, {sampling::Params{.top_k = 3}}), [](int) {});
  EXPECT_FALSE(again.drawn(0).has_value());
  EXPECT_TRUE(std::ranges::equal(again.logits(0), logits));
  engine->pool().Release(blocks);
}

}  // namespace
}  // namespace baton::engine
