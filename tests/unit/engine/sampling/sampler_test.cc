#include "engine/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "common/base/random.h"
#include "tests/unit/engine/sampling/specials.h"

namespace baton::sampling {
namespace {

using ::testing::FloatNear;
using ::testing::IsEmpty;

std::vector<float> RandomLogits(uint32_t seed, size_t vocabulary, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TokenId Draw1(std::span<const float> logits, const Params& params, uint64_t position = 0,
              const History& history = {}) {
  Sampler sampler;
  const auto draw = sampler.Sample(logits, params, history, position, std::nullopt);
  EXPECT_TRUE(draw.ok()) << draw.status();
  return draw.ok() ? draw->token : TokenId(-1);
}

std::vector<TokenProbability> DistributionOf(std::span<const float> logits, const Params& params,
                                             const History& history = {}) {
  Sampler sampler;
  auto distribution = sampler.Distribution(logits, params, history);
  EXPECT_TRUE(distribution.ok()) << distribution.status();
  return distribution.ok() ? *distribution : std::vector<TokenProbability>();
}

// The slow, obvious twin: everything sorted, everything divided.
std::vector<TokenProbability> NaiveDistribution(std::span<const float> logits, const Params& params) {
  std::vector<TokenProbability> all;
  float max = -kInfinity;
  for (const float logit : logits) max = std::max(max, std::isnan(logit) ? -kInfinity : logit);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || std::isinf(logits[i])) continue;
    all.push_back({TokenId(static_cast<int32_t>(i)),
                   std::exp((static_cast<double>(logits[i]) - max) / params.temperature)});
  }
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return logits[a.token.value()] > logits[b.token.value()];
  });
  if (params.top_k > 0 && std::ssize(all) > params.top_k) all.resize(params.top_k);
  double total = 0;
  for (const auto& [token, weight] : all) total += weight;
  std::vector<TokenProbability> kept;
  double mass = 0;
  for (const auto& entry : all) {
    if (!kept.empty() && params.top_p < 1 && mass >= static_cast<double>(params.top_p) * total) break;
    if (entry.probability < static_cast<double>(params.min_p) || entry.probability == 0) break;
    kept.push_back(entry);
    mass += entry.probability;
  }
  for (auto& entry : kept) entry.probability /= mass;
  return kept;
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfTheLikeliest) {
  std::vector<float> logits = RandomLogits(1, 1000, 1);
  logits[317] = logits[800] = logits[999] = 9;
  const Params greedy{.temperature = 0, .top_k = 40, .top_p = 0.5f, .seed = 7};
  for (uint64_t position = 0; position < 50; ++position)
    EXPECT_EQ(Draw1(logits, greedy, position), TokenId(317));
  logits[3] = kNan;
  logits[4] = -kInfinity;
  EXPECT_EQ(Draw1(logits, greedy), TokenId(317));
  EXPECT_EQ(DistributionOf(logits, greedy).size(), 1u);
}

TEST(SamplerTest, TinyTemperatureIsGreedyWithoutOverflow) {
  std::vector<float> logits = RandomLogits(2, 1000, 1e30f);
  logits[500] = 3e38f;
  for (const float temperature : {1e-45f, 1e-38f, 1e-10f}) {
    for (uint64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(Draw1(logits, {.temperature = temperature}, position), TokenId(500)) << temperature;
    }
  }
  // Equal ones still share.
  logits[700] = 3e38f;
  const auto shared = DistributionOf(logits, {.temperature = 1e-45f});
  ASSERT_EQ(shared.size(), 2u);
  EXPECT_EQ(shared[0].token, TokenId(500));
  EXPECT_EQ(shared[0].probability, 0.5);
}

TEST(SamplerTest, AgreesWithItsNaiveTwin) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto pick = [&](auto... values) {
      const std::vector<double> choices = {static_cast<double>(values)...};
      return choices[random() % choices.size()];
    };
    const size_t vocabulary = static_cast<size_t>(pick(1, 5, 300, 5000));
    std::vector<float> logits = RandomLogits(seed, vocabulary, static_cast<float>(pick(0.01, 1, 5)));
    if (random() % 3 == 0) {
      for (float& logit : logits) logit = std::round(logit);  // ties
    }
    if (vocabulary > 1 && random() % 3 == 0) {
      for (int i = 0; i < 10; ++i) logits[1 + random() % (vocabulary - 1)] = i % 2 == 0 ? kNan : -kInfinity;
    }
    const Params params{.temperature = static_cast<float>(pick(0.3, 1, 1, 2.5)),
                        .top_k = static_cast<int>(pick(0, 0, 1, 10, 700, 100000)),
                        .top_p = static_cast<float>(pick(1, 1, 0.1, 0.7, 0.99)),
                        .min_p = static_cast<float>(pick(0, 0, 0.01, 0.3))};
    const auto expected = NaiveDistribution(logits, params);
    const auto distribution = DistributionOf(logits, params);
    ASSERT_EQ(distribution.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(distribution[i].token, expected[i].token) << "place " << i;
      ASSERT_NEAR(distribution[i].probability, expected[i].probability, 1e-12 * expected[i].probability);
    }
    // Sample, which looks at as little of it as it can, draws from the same one.
    Sampler sampler;
    for (uint64_t position = 0; position < 20; ++position) {
      const double uniform = UniformAt(params.seed, position);
      TokenId token;
      double passed = 0;
      for (const auto& entry : expected) {
        token = entry.token;
        passed += entry.probability;
        if (passed > uniform) break;
      }
      const auto draw = sampler.Sample(logits, params, {}, position, std::nullopt);
      ASSERT_TRUE(draw.ok());
      ASSERT_EQ(draw->token, token) << "position " << position;
    }
  }
}

TEST(SamplerTest, TopKKeepsExactlyKAndTiesByLowestId) {
  const std::vector<float> logits = {1, 3, 2, 2, 2, 0};
  const auto kept = DistributionOf(logits, {.top_k = 3});
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].token, TokenId(1));
  EXPECT_EQ(kept[1].token, TokenId(2));
  EXPECT_EQ(kept[2].token, TokenId(3));
}

// Pearson's chi-square over 10,000 draws, in units of its standard deviation sqrt(2 df) from its mean df.
double ChiSquareScore(std::span<const float> logits, const Params& drawn, const Params& expected) {
  constexpr int kDraws = 10'000;
  std::vector<int> counts(logits.size());
  Sampler sampler;
  for (int position = 0; position < kDraws; ++position) {
    const auto draw = sampler.Sample(logits, drawn, {}, position, std::nullopt);
    EXPECT_TRUE(draw.ok());
    ++counts[draw->token.value()];
  }
  const auto distribution = DistributionOf(logits, expected);
  double chi_square = 0;
  int outside = kDraws;
  for (const auto& [token, probability] : distribution) {
    const double wanted = probability * kDraws;
    chi_square += std::pow(counts[token.value()] - wanted, 2) / wanted;
    outside -= counts[token.value()];
  }
  if (outside > 0) return kInfinity;
  const double df = static_cast<double>(distribution.size() - 1);
  return (chi_square - df) / std::sqrt(2 * df);
}

TEST(SamplerTest, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = RandomLogits(5, 30, 1);
  for (const uint64_t seed : {1, 2, 1'000'000'007}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (const Params& params :
         {Params{.seed = seed}, Params{.temperature = 0.6f, .seed = seed}, Params{.top_k = 12, .seed = seed},
          Params{.top_p = 0.8f, .seed = seed}, Params{.min_p = 0.1f, .seed = seed},
          Params{.temperature = 1.5f, .top_k = 20, .top_p = 0.9f, .seed = seed}}) {
      EXPECT_LT(ChiSquareScore(logits, params, params), 4);
    }
    // The test can tell a temperature that is a tenth off, and a token that must not come.
    EXPECT_GT(ChiSquareScore(logits, {.seed = seed}, {.temperature = 1.1f}), 8);
    EXPECT_EQ(ChiSquareScore(logits, {.seed = seed}, {.top_k = 12}), kInfinity);
  }
}

TEST(SamplerTest, DrawDependsOnSeedAndPositionAndOnNothingBefore) {
  const std::vector<float> logits = RandomLogits(6, 5000, 1);
  const Params params{.temperature = 0.9f, .top_p = 0.95f, .seed = 42};
  std::vector<TokenId> forward;
  Sampler one;
  for (uint64_t position = 0; position < 200; ++position) {
    forward.push_back(one.Sample(logits, params, {}, position, std::nullopt)->token);
  }
  Sampler other;
  for (uint64_t position = 200; position-- > 0;) {
    // In between, the other sampler serves somebody else.
    ASSERT_TRUE(
        other.Sample(RandomLogits(position, 100, 1), {.repetition_penalty = 2}, {}, position, 3).ok());
    EXPECT_EQ(other.Sample(logits, params, {}, position, 5)->token, forward[position]);
    EXPECT_EQ(Draw1(logits, params, position), forward[position]);
  }
  Params another = params;
  another.seed = 43;
  int equal = 0;
  for (uint64_t position = 0; position < 200; ++position)
    equal += Draw1(logits, another, position) == forward[position];
  EXPECT_LT(equal, 20);
}

TEST(SamplerTest, HistoryReplayedGivesTheSamePenalties) {
  const std::vector<float> logits = RandomLogits(7, 200, 1);
  const Params params{
      .seed = 9, .repetition_penalty = 1.2f, .presence_penalty = 0.5f, .frequency_penalty = 0.25f};
  const std::vector<TokenId> prompt = {TokenId(1), TokenId(2), TokenId(3)};
  Sampler sampler;
  History history;
  history.AddPrompt(prompt);
  std::vector<TokenId> output;
  for (uint64_t position = 3; position < 103; ++position) {
    output.push_back(sampler.Sample(logits, params, history, position, std::nullopt)->token);
    history.AddOutput(output.back());
  }
  History replayed;
  replayed.AddPrompt(prompt);
  for (int i = 0; i < 50; ++i) replayed.AddOutput(output[i]);
  for (uint64_t position = 53; position < 103; ++position) {
    ASSERT_EQ(Draw1(logits, params, position, replayed), output[position - 3]);
    replayed.AddOutput(output[position - 3]);
  }
}

// The log of a probability ratio is the difference of two adjusted logits.
double LogRatio(std::span<const TokenProbability> distribution, int a, int b) {
  double log_a = 0, log_b = 0;
  for (const auto& [token, probability] : distribution) {
    if (token == TokenId(a)) log_a = std::log(probability);
    if (token == TokenId(b)) log_b = std::log(probability);
  }
  return log_a - log_b;
}

TEST(SamplerTest, PenaltiesAndBiasFollowTheirFormulas) {
  // 0: prompt, 1: prompt, negative, 2: output twice, 3: prompt and output, 4: biased, 5: untouched.
  const std::vector<float> logits = {2, -2, 1.5f, 0.5f, 0.25f, 0};
  History history;
  history.AddPrompt(std::vector<TokenId>{TokenId(0), TokenId(1), TokenId(3), TokenId(0)});
  for (const int token : {2, 3, 2}) history.AddOutput(TokenId(token));

  auto kept = DistributionOf(logits, {.repetition_penalty = 2}, history);
  EXPECT_NEAR(LogRatio(kept, 0, 5), 1, 1e-9);  // once, however often it was there
  EXPECT_NEAR(LogRatio(kept, 1, 5), -4, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 2, 5), 0.75, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 3, 5), 0.25, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 4, 5), 0.25, 1e-9);

  kept = DistributionOf(logits, {.presence_penalty = 0.5f}, history);
  EXPECT_NEAR(LogRatio(kept, 0, 5), 2, 1e-9);  // the prompt doesn't count
  EXPECT_NEAR(LogRatio(kept, 2, 5), 1, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 3, 5), 0, 1e-9);

  kept = DistributionOf(logits, {.frequency_penalty = 0.5f}, history);
  EXPECT_NEAR(LogRatio(kept, 1, 5), -2, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 2, 5), 0.5, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 3, 5), 0, 1e-9);

  // All at once, in order: (1.5 / 2) - 0.5 - 2 x 0.25 + 1, and the temperature last.
  kept = DistributionOf(logits,
                        {.temperature = 2,
                         .repetition_penalty = 2,
                         .presence_penalty = 0.5f,
                         .frequency_penalty = 0.25f,
                         .logit_bias = {{TokenId(2), 1.0f}, {TokenId(4), -0.75f}}},
                        history);
  EXPECT_NEAR(LogRatio(kept, 2, 5), 0.75 / 2, 1e-9);
  EXPECT_NEAR(LogRatio(kept, 4, 5), -0.5 / 2, 1e-9);
}

TEST(SamplerTest, LogprobsAreBeforeTemperatureAndAfterBias) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f), -kInfinity};
  Sampler sampler;
  const Params params{.temperature = 0.01f, .top_k = 1, .logit_bias = {{TokenId(0), std::log(3.0f)}}};
  // 3, 2 and 5 parts of ten.
  auto draw = sampler.Sample(logits, params, {}, 0, 2);
  ASSERT_TRUE(draw.ok());
  EXPECT_EQ(draw->token, TokenId(2));
  EXPECT_THAT(*draw->logprob, FloatNear(std::log(0.5f), 1e-6f));
  ASSERT_EQ(draw->top.size(), 2u);
  EXPECT_EQ(draw->top[0].token, TokenId(2));
  EXPECT_THAT(draw->top[0].logprob, FloatNear(std::log(0.5f), 1e-6f));
  EXPECT_EQ(draw->top[1].token, TokenId(0));
  EXPECT_THAT(draw->top[1].logprob, FloatNear(std::log(0.3f), 1e-6f));

  draw = sampler.Sample(logits, params, {}, 0, 20);
  EXPECT_EQ(draw->top.size(), 3u) << "the impossible token is left out";
  draw = sampler.Sample(logits, params, {}, 0, 0);
  EXPECT_TRUE(draw->logprob.has_value());
  EXPECT_THAT(draw->top, IsEmpty());
  draw = sampler.Sample(logits, params, {}, 0, std::nullopt);
  EXPECT_FALSE(draw->logprob.has_value());
  // A greedy draw has log probabilities, too.
  draw = sampler.Sample(logits, {.temperature = 0}, {}, 0, 1);
  EXPECT_THAT(*draw->logprob, FloatNear(std::log(5.0f / 8), 1e-6f));
}

TEST(SamplerTest, AForcedTokenIsReportedLikeADraw) {
  Sampler sampler;
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  for (const Params& params : {Params{.temperature = 0}, Params{.top_k = 1}, Params{.seed = 3}}) {
    const auto draw = sampler.Sample(logits, params, {}, 0, 1, TokenId(2));
    ASSERT_TRUE(draw.ok());
    EXPECT_EQ(draw->token, TokenId(2));
    EXPECT_THAT(*draw->logprob, FloatNear(std::log(0.2f), 1e-6f));
    EXPECT_EQ(draw->top[0].token, TokenId(0));
  }
}

TEST(SamplerTest, AMaskedTokenIsNeverDrawnOrReported) {
  Sampler sampler;
  std::vector<float> logits(70, 1.0f);
  logits[3] = 9;
  std::vector<uint32_t> mask = {1u << 5, 1u << 2, 0};
  for (const Params& params : {Params{.temperature = 0}, Params{.top_k = 2}, Params{.seed = 3}}) {
    for (uint64_t position = 0; position < 50; ++position) {
      const auto draw = sampler.Sample(logits, params, {}, position, 5, std::nullopt, mask);
      ASSERT_TRUE(draw.ok());
      EXPECT_TRUE(draw->token == TokenId(5) || draw->token == TokenId(34)) << draw->token.value();
      EXPECT_EQ(draw->top.size(), 2u);
      EXPECT_THAT(*draw->logprob, FloatNear(std::log(0.5f), 1e-6f));
    }
  }
  // No bias brings one back, and what lies beyond the mask is masked.
  const Params bias{.temperature = 0, .logit_bias = {{TokenId(3), 100.0f}, {TokenId(69), 100.0f}}};
  mask = {1u << 5};
  EXPECT_EQ(sampler.Sample(logits, bias, {}, 0, std::nullopt, std::nullopt, mask)->token, TokenId(5));
  mask = {0};
  EXPECT_TRUE(
      absl::IsInternal(sampler.Sample(logits, bias, {}, 0, std::nullopt, std::nullopt, mask).status()));
}

TEST(SamplerTest, NoTokenLeftIsAnErrorAndInfinityIsNot) {
  Sampler sampler;
  for (const float temperature : {0.0f, 1.0f}) {
    for (const float value : {kNan, -kInfinity}) {
      const auto draw = sampler.Sample(std::vector<float>(64, value), {.temperature = temperature}, {}, 0, 1);
      EXPECT_EQ(draw.status().code(), absl::StatusCode::kInternal);
    }
    std::vector<float> logits = RandomLogits(8, 64, 1);
    logits[11] = kInfinity;
    EXPECT_EQ(Draw1(logits, {.temperature = temperature}), TokenId(11));
    EXPECT_EQ(Draw1(logits, {.temperature = temperature, .repetition_penalty = 1e-3f}), TokenId(11));
  }
}

TEST(SamplerTest, LogitsAreNotChanged) {
  const std::vector<float> logits = RandomLogits(9, 100, 1);
  std::vector<float> given = logits;
  History history;
  history.AddOutput(TokenId(3));
  Draw1(given, {.repetition_penalty = 3, .logit_bias = {{TokenId(5), 2.0f}}}, 0, history);
  EXPECT_EQ(given, logits);
}

}  // namespace
}  // namespace baton::sampling
