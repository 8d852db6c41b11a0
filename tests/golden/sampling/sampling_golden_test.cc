// The kept tokens and their probabilities against Hugging Face transformers' logits processors
// (make_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "engine/sampling/sampler.h"
#include "nlohmann/json.hpp"

namespace baton::sampling {
namespace {

TEST(SamplingGoldenTest, KeepsWhatTransformersKeeps) {
  std::ifstream file(BATON_SOURCE_DIR "/tests/golden/sampling/golden.json");
  const auto groups = nlohmann::json::parse(file);
  int cases = 0;
  for (const auto& group : groups) {
    const auto logits = group["logits"].get<std::vector<float>>();
    History history;
    for (const int32_t token : group["history"]) history.AddPrompt(std::vector<TokenId>{TokenId(token)});
    for (const auto& golden : group["cases"]) {
      ++cases;
      const auto& parameters = golden["parameters"];
      SCOPED_TRACE(parameters.dump());
      Params params;
      params.temperature = parameters["temperature"];
      params.top_k = parameters["top_k"];
      params.top_p = parameters["top_p"];
      params.min_p = parameters["min_p"];
      params.repetition_penalty = parameters["repetition_penalty"];
      ASSERT_TRUE(params.Validate(std::ssize(logits)).ok());

      Sampler sampler;
      const auto distribution = sampler.Distribution(logits, params, history);
      ASSERT_TRUE(distribution.ok()) << distribution.status();
      std::map<int, double> kept;
      for (const auto& [token, probability] : *distribution) kept[token.value()] = probability;
      const auto& expected = golden["kept"];
      ASSERT_EQ(kept.size(), expected.size());
      for (const auto& [token, probability] : expected.items()) {
        const auto found = kept.find(std::stoi(token));
        ASSERT_NE(found, kept.end()) << "token " << token;
        // Penalties are applied in float32 here and in float64 there.
        EXPECT_NEAR(found->second, probability.get<double>(), 2e-6 * probability.get<double>())
            << "token " << token;
      }
    }
  }
  EXPECT_EQ(cases, 57);
}

}  // namespace
}  // namespace baton::sampling
