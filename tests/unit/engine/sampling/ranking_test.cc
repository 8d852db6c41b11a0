#include "engine/sampling/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/sampling/softmax.h"

namespace baton::sampling {
namespace {

// Everything sorted, everything added up in order.
std::vector<Candidate> SortAll(std::span<const float> logits) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({logits[i], static_cast<int32_t>(i)});
  std::sort(all.begin(), all.end());
  return all;
}

void ExpectRanked(std::span<const float> logits, double inverse_temperature, const Cut& cut) {
  const float max = Max(logits);
  Ranking ranking;
  ranking.Rank(logits, max, inverse_temperature);
  const double mass = ranking.Keep(cut);

  std::vector<Candidate> expected = SortAll(logits);
  double expected_mass = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double weight = Weight(expected[i].logit, max, inverse_temperature);
    if (cut.EndsBefore(weight, expected_mass)) {
      expected.resize(i);
      break;
    }
    expected_mass += weight;
  }
  ASSERT_NEAR(mass, expected_mass, 1e-12 * expected_mass);
  const std::vector<Candidate> kept = ranking.Kept();
  ASSERT_EQ(kept.size(), expected.size());
  for (size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i].id, expected[i].id) << "rank " << i;

  // At the middle of the share of each of some tokens, from the first to the last, stands that token.
  double passed = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double weight = Weight(expected[i].logit, max, inverse_temperature);
    const bool wide = weight > 1e-9 * expected_mass;  // wide enough that rounding can't miss it
    if (wide && i % (1 + expected.size() / 50) == 0) {
      ASSERT_EQ(ranking.At((passed + weight / 2) / mass), expected[i].id) << "rank " << i;
    }
    passed += weight;
  }
  ASSERT_EQ(ranking.At(0), expected.front().id);
}

TEST(RankingTest, IsTheOrderOfAFullSort) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const float spreads[] = {0, 1e-6f, 0.05f, 1, 10, 1000};
    std::normal_distribution<float> normal(0, 1);
    const float spread = spreads[seed % 6];
    std::vector<float> logits(1 + random() % 3000);
    for (float& logit : logits) logit = normal(random) * spread;
    if (random() % 2 == 0) {
      for (float& logit : logits) logit = std::round(logit * 4) / 4;  // ties
    }
    for (const double inverse_temperature : {1.0, 0.001, 4.0, 1e40}) {
      ExpectRanked(logits, inverse_temperature, {});
      Ranking ranking;
      ranking.Rank(logits, Max(logits), inverse_temperature);
      for (const double share : {1e-6, 0.3, 0.9, 0.9999}) {
        ExpectRanked(logits, inverse_temperature, {.mass = share * ranking.total()});
      }
      for (const double weight : {1e-30, 1e-13, 0.01, 0.5, 1.0}) {
        ExpectRanked(logits, inverse_temperature, {.weight = weight});
      }
      ExpectRanked(logits, inverse_temperature, {.mass = 0.8 * ranking.total(), .weight = 0.1});
    }
  }
}

TEST(RankingTest, ShareJustBelowOneIsTheLastTokenWithWeight) {
  const std::vector<float> logits = {0, 3, 1, -2000, 2};
  Ranking ranking;
  ranking.Rank(logits, 3, 1.0);
  EXPECT_EQ(ranking.At(0x1.fffffffffffffp-1), 0);
  ranking.Keep({.weight = 0.3});
  EXPECT_EQ(ranking.At(0x1.fffffffffffffp-1), 4);
  EXPECT_EQ(ranking.Kept().size(), 2u);
}

}  // namespace
}  // namespace baton::sampling
