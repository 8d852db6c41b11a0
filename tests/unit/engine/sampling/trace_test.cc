#include "engine/sampling/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/base/random.h"
#include "engine/sampling/sampler.h"
#include "tests/unit/engine/sampling/specials.h"

namespace baton::sampling {
namespace {

using ::testing::ElementsAre;

std::vector<float> TracedLogits(size_t vocabulary, float spread = 3) {
  std::mt19937 random(38);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

struct Traced {
  Draw draw;
  Trace trace;
};

Traced TraceOf(std::span<const float> logits, const Params& params, uint64_t position = 0,
               std::optional<TokenId> forced = std::nullopt, std::span<const uint32_t> mask = {}) {
  Sampler sampler;
  const auto draw = sampler.Sample(logits, params, {}, position, std::nullopt, forced, mask);
  EXPECT_TRUE(draw.ok()) << draw.status();
  return {*draw, sampler.Explain(logits, params, {}, position, draw->token, forced.has_value(), mask)};
}

std::vector<int64_t> CountsOf(const Trace& trace) {
  return {trace.vocabulary,  trace.after_mask,  trace.after_temperature,
          trace.after_top_k, trace.after_top_p, trace.after_min_p};
}

TEST(TraceTest, TopKOfALargeVocabularySaysHowManyItDropped) {
  const auto logits = TracedLogits(128'000);
  const Trace trace = TraceOf(logits, {.top_k = 50}).trace;
  EXPECT_EQ(trace.vocabulary, 128'000);
  EXPECT_EQ(trace.after_temperature - trace.after_top_k, 127'950);
  EXPECT_THAT(CountsOf(trace), ElementsAre(128'000, 128'000, 128'000, 50, 50, 50));
}

TEST(TraceTest, CountsAndProbabilitiesAreThoseOfTheDistribution) {
  const auto logits = TracedLogits(5000, 1);
  for (const Params& params :
       {Params{.seed = 1}, Params{.top_p = 0.7f, .seed = 2}, Params{.min_p = 0.1f, .seed = 3},
        Params{.temperature = 0.6f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f, .seed = 4},
        Params{.temperature = 1.4f, .top_p = 0.95f, .min_p = 0.05f, .seed = 5}}) {
    Sampler sampler;
    const auto distribution = sampler.Distribution(logits, params, {});
    ASSERT_TRUE(distribution.ok());
    const Trace trace = TraceOf(logits, params).trace;
    EXPECT_EQ(trace.after_min_p, std::ssize(*distribution));
    for (const TokenTrace& token : trace.likeliest) {
      const auto kept = std::ranges::find(*distribution, token.token, &TokenProbability::token);
      EXPECT_DOUBLE_EQ(token.drawn, kept == distribution->end() ? 0 : kept->probability);
    }
  }
}

TEST(TraceTest, TheUniformNumberPicksTheToken) {
  const auto logits = TracedLogits(300, 1);
  for (uint64_t position = 0; position < 50; ++position) {
    const Params params{.top_k = 8, .seed = 7};
    const auto [draw, trace] = TraceOf(logits, params, position);
    ASSERT_TRUE(trace.uniform.has_value());
    EXPECT_EQ(*trace.uniform, UniformAt(7, position));
    double passed = 0;
    TokenId picked;
    for (const TokenTrace& token : trace.likeliest) {
      picked = token.token;
      passed += token.drawn;
      if (passed > *trace.uniform) break;
    }
    EXPECT_EQ(picked, draw.token);
    EXPECT_EQ(trace.token, draw.token);
    EXPECT_EQ(trace.how, Trace::How::kDrawn);
  }
}

TEST(TraceTest, TheChosenTokenIsListedBehindTheLikeliest) {
  const std::vector<float> flat(1000, 0);
  int behind = 0;
  for (uint64_t position = 0; position < 20; ++position) {
    const auto [draw, trace] = TraceOf(flat, {.seed = 5}, position);
    const auto listed = std::ranges::find(trace.likeliest, draw.token, &TokenTrace::token);
    ASSERT_NE(listed, trace.likeliest.end());
    if (draw.token.value() < kTracedTokens) continue;
    ++behind;
    EXPECT_EQ(std::ssize(trace.likeliest), kTracedTokens + 1);
    EXPECT_EQ(listed, trace.likeliest.end() - 1);
    EXPECT_DOUBLE_EQ(listed->drawn, 1e-3);
  }
  EXPECT_GT(behind, 0);
}

TEST(TraceTest, AGreedyTokenIsAllThatTheTemperatureLeaves) {
  const auto [draw, trace] = TraceOf(TracedLogits(500), {.temperature = 0, .top_k = 5, .top_p = 0.5f});
  EXPECT_EQ(trace.how, Trace::How::kGreedy);
  EXPECT_FALSE(trace.uniform.has_value());
  EXPECT_THAT(CountsOf(trace), ElementsAre(500, 500, 1, 1, 1, 1));
  EXPECT_EQ(trace.likeliest.front().token, draw.token);
  EXPECT_EQ(trace.likeliest.front().drawn, 1);
  EXPECT_EQ(trace.likeliest.at(1).tempered, 0);
  EXPECT_GT(trace.likeliest.at(1).probability, 0);
}

TEST(TraceTest, OfAForcedTokenItSaysWhatTheFiltersWouldHaveLeft) {
  std::vector<float> logits(40, 0);
  for (int id = 0; id < 40; ++id) logits[id] = static_cast<float>(-id);
  const auto [draw, trace] = TraceOf(logits, {.top_k = 4}, 0, TokenId(30));
  EXPECT_EQ(draw.token, TokenId(30));
  EXPECT_EQ(trace.how, Trace::How::kForced);
  EXPECT_FALSE(trace.uniform.has_value());
  EXPECT_EQ(trace.after_min_p, 4);
  EXPECT_EQ(trace.likeliest.back().token, TokenId(30));
  EXPECT_EQ(trace.likeliest.back().drawn, 0);
  EXPECT_GT(trace.likeliest.back().tempered, 0);
}

TEST(TraceTest, AForcedTokenMayHaveNoLogit) {
  std::vector<float> logits(12, 0);
  logits[0] = kNan;
  logits[5] = 9;
  for (const float temperature : {0.0f, 1.0f}) {
    const Trace trace = TraceOf(logits, {.temperature = temperature}, 0, TokenId(0)).trace;
    ASSERT_EQ(std::ssize(trace.likeliest), kTracedTokens + 1);
    EXPECT_EQ(trace.likeliest.back().token, TokenId(0));
    EXPECT_EQ(trace.likeliest.back().tempered, 0);
    EXPECT_EQ(trace.likeliest.back().drawn, 0);
    EXPECT_GT(trace.likeliest.front().drawn, 0.5);
  }
}

TEST(TraceTest, AMaskLeavesWhatItAllowsAndTheModelsOwnProbability) {
  const std::vector<float> logits = {5, 4, 3, 2, 1, 0};
  const std::vector<uint32_t> mask = {0b010100};
  const Trace trace = TraceOf(logits, {.seed = 1}, 0, std::nullopt, mask).trace;
  EXPECT_THAT(CountsOf(trace), ElementsAre(6, 2, 2, 2, 2, 2));
  ASSERT_EQ(trace.likeliest.size(), 2);
  EXPECT_EQ(trace.likeliest[0].token, TokenId(2));
  EXPECT_EQ(trace.likeliest[1].token, TokenId(4));
  EXPECT_NEAR(trace.likeliest[0].drawn + trace.likeliest[1].drawn, 1, 1e-12);
  // The mask left little of the model's own distribution.
  EXPECT_LT(trace.likeliest[0].probability, 0.1);
}

TEST(TraceTest, PenaltiesAndBiasesShowInTheAdjustedLogitAlone) {
  const Trace trace = TraceOf({{1, 2, 3}}, {.temperature = 0, .logit_bias = {{TokenId(0), 4}}}).trace;
  EXPECT_EQ(trace.token, TokenId(0));
  EXPECT_EQ(trace.likeliest[0].logit, 1);
  EXPECT_EQ(trace.likeliest[0].adjusted, 5);
  EXPECT_EQ(trace.likeliest[1].logit, trace.likeliest[1].adjusted);
}

TEST(TraceTest, LogitsThatAreNoNumbersAreNotOfTheVocabulary) {
  const Trace trace = TraceOf({{kNan, 1, -kInfinity, kInfinity}}, {.seed = 2}).trace;
  EXPECT_EQ(trace.vocabulary, 2);
  // Beside an infinite logit, which counts as the largest number, the other has no weight.
  EXPECT_EQ(trace.after_temperature, 1);
  EXPECT_EQ(trace.token, TokenId(3));
}

TEST(TraceTest, SamplingMakesNone) {
  Sampler sampler;
  EXPECT_FALSE(sampler.Sample(TracedLogits(20), {}, {}, 0, 5)->trace.has_value());
}

}  // namespace
}  // namespace baton::sampling
