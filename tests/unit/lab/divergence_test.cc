#include "lab/eval/divergence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace baton::lab {
namespace {

TEST(DivergenceTest, IsThatOfTheDistributions) {
  const std::vector<float> even = {3, 3}, uneven = {0, std::log(3.0f)};
  EXPECT_NEAR(Divergence(even, uneven), 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75), 1e-6);
  EXPECT_EQ(Divergence(uneven, uneven), 0);
  // Large logits neither overflow nor lose what they differ by.
  const std::vector<float> high = {5000, 5001}, low = {-5000, -4999};
  EXPECT_NEAR(Divergence(high, low), 0, 1e-12);
}

TEST(DivergenceTest, NumbersThatAreNoneAreInfinitelyFar) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> fine = {1, 2, 3};
  for (const std::vector<float>& bad : {std::vector<float>{1, nan, 3}, {1, infinity, 3}, {nan, nan, nan}}) {
    EXPECT_EQ(Divergence(fine, bad), infinity);
    EXPECT_EQ(Divergence(bad, fine), infinity);
    EXPECT_EQ(Divergence(bad, bad), infinity);
  }
  // A token that cannot follow has no part in it, unless the reference has it.
  const std::vector<float> without = {1, -infinity, 3}, two = {1, 3};
  EXPECT_NEAR(Divergence(without, fine),
              Divergence(two, two) +
                  std::log((std::exp(1.0) + std::exp(2.0) + std::exp(3.0)) / (std::exp(1.0) + std::exp(3.0))),
              1e-6);
  EXPECT_EQ(Divergence(fine, without), infinity);
}

std::unique_ptr<engine::Engine> Load(model::WeightPrecision weights) {
  return engine::Engine::Load({.model_folder = BATON_SOURCE_DIR "/tests/golden/models/data/llama-mha",
                               .threads = 1,
                               .kv_blocks = 64,
                               .weights = weights})
      .value();
}

std::vector<TokenId> Text(int tokens, uint32_t state) {
  std::vector<TokenId> text;
  for (int i = 0; i < tokens; ++i) {
    state = state * 1664525 + 1013904223;
    text.emplace_back(static_cast<int32_t>(state >> 16) % 100);
  }
  return text;
}

// Softmax of the logits of all of a text's positions but the last, by the plain formula.
std::vector<std::vector<double>> Probabilities(engine::Engine& engine, const std::vector<TokenId>& text) {
  const std::vector<BlockId> blocks = engine.pool().Allocate(BlocksFor(std::ssize(text))).value();
  std::vector<std::vector<double>> made;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    engine::Batch batch;
    batch.Add({.tokens = std::span(text).subspan(i, 1),
               .first_position = static_cast<int64_t>(i),
               .blocks = blocks,
               .logit_rows = 1});
    const engine::StepResult result = engine.Forward(batch, [](int) {});
    std::vector<double>& row = made.emplace_back();
    double sum = 0;
    for (const float logit : result.logits(0)) sum += row.emplace_back(std::exp(double{logit}));
    for (double& p : row) p /= sum;
  }
  engine.pool().Release(blocks);
  return made;
}

TEST(DivergenceTest, ComparesAllPositionsOfAllTexts) {
  const auto reference = Load(model::WeightPrecision::kStored), other = Load(model::WeightPrecision::kInt4);
  const std::vector<std::vector<TokenId>> texts = {Text(3, 1), Text(120, 2)};
  std::vector<double> divergences;
  double log_reference = 0, log_other = 0, same = 0;
  for (const auto& text : texts) {
    const auto p = Probabilities(*reference, text), q = Probabilities(*other, text);
    for (size_t i = 0; i < p.size(); ++i) {
      double& divergence = divergences.emplace_back(0);
      for (size_t v = 0; v < p[i].size(); ++v) divergence += p[i][v] * std::log(p[i][v] / q[i][v]);
      const auto next = static_cast<size_t>(text[i + 1].value());
      log_reference += std::log(p[i][next]);
      log_other += std::log(q[i][next]);
      same += std::ranges::max_element(p[i]) - p[i].begin() == std::ranges::max_element(q[i]) - q[i].begin();
    }
  }
  ASSERT_EQ(divergences.size(), 121u);
  const auto count = static_cast<double>(divergences.size());
  double sum = 0;
  for (const double divergence : divergences) sum += divergence;
  std::ranges::sort(divergences);
  const int64_t free = reference->pool().counts().free;
  for (const int threads : {1, 3}) {
    const Distance found = Compare(*reference, *other, texts, threads);
    EXPECT_EQ(found.positions, 121);
    EXPECT_NEAR(found.mean, sum / count, 1e-7);
    EXPECT_GT(found.mean, 1e-5) << "weights of 4 bits differ";
    EXPECT_NEAR(found.p99, divergences[119], 1e-7) << "of 121, 99% are 120";
    EXPECT_NEAR(found.largest, divergences[120], 1e-7);
    EXPECT_NEAR(found.perplexity_reference, std::exp(-log_reference / count), 1e-3);
    EXPECT_NEAR(found.perplexity, std::exp(-log_other / count), 1e-3);
    EXPECT_NEAR(found.same_choice, same / count, 1e-9);
  }
  EXPECT_EQ(reference->pool().counts().free, free) << "blocks are given back";
}

TEST(DivergenceTest, AModelIsNotFarFromItself) {
  const auto one = Load(model::WeightPrecision::kInt8), two = Load(model::WeightPrecision::kInt8);
  const Distance found = Compare(*one, *two, {Text(80, 3)}, 2);
  EXPECT_EQ(found.mean, 0);
  EXPECT_EQ(found.largest, 0);
  EXPECT_EQ(found.same_choice, 1);
  EXPECT_EQ(found.perplexity, found.perplexity_reference);
}

}  // namespace
}  // namespace baton::lab
