// Traces of 1,200 draws with random parameters against a copy of the steps in NumPy (make_traces.py): what
// each filter left, the uniform number, the chosen token, the likeliest ones and their probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "engine/sampling/sampler.h"
#include "nlohmann/json.hpp"

namespace baton::sampling {
namespace {

using nlohmann::json;

struct TracedCase {
  Params params;
  uint64_t position = 0;
  std::vector<uint32_t> mask;
};

TracedCase CaseOf(const json& told, size_t vocabulary) {
  TracedCase made;
  Params& params = made.params;
  params.temperature = told.value("temperature", 1.0f);
  params.top_k = told.value("top_k", 0);
  params.top_p = told.value("top_p", 1.0f);
  params.min_p = told.value("min_p", 0.0f);
  params.seed = told["seed"];
  params.repetition_penalty = told.value("repetition_penalty", 1.0f);
  params.presence_penalty = told.value("presence_penalty", 0.0f);
  params.frequency_penalty = told.value("frequency_penalty", 0.0f);
  for (const json& bias : told.value("logit_bias", json::array())) {
    params.logit_bias.emplace_back(TokenId(bias[0].get<int32_t>()), bias[1].get<float>());
  }
  made.position = told["position"];
  for (const uint32_t id : told.value("mask", std::vector<uint32_t>())) {
    made.mask.resize((vocabulary + 31) / 32);
    made.mask[id / 32] |= 1u << id % 32;
  }
  return made;
}

void ExpectTokens(const Trace& trace, const json& expected) {
  ASSERT_EQ(trace.likeliest.size(), expected["likeliest"].size());
  for (size_t i = 0; i < trace.likeliest.size(); ++i) {
    const TokenTrace& token = trace.likeliest[i];
    EXPECT_EQ(token.token.value(), expected["likeliest"][i]) << i;
    const auto near = [&](double value, const char* name) {
      const double wanted = expected[name][i];
      EXPECT_NEAR(value, wanted, 1e-5 * std::abs(wanted)) << name << " of token " << token.token.value();
    };
    near(token.adjusted, "adjusted");
    near(token.probability, "probability");
    near(token.tempered, "tempered");
    near(token.drawn, "drawn");
  }
}

TEST(TraceGoldenTest, TellsWhatNumPyComputes) {
  std::ifstream file(BATON_SOURCE_DIR "/tests/golden/sampling/traces.json");
  int draws = 0, with_tokens = 0;
  for (const json& group : json::parse(file)) {
    std::vector<float> logits;
    for (const int unit : group["logits"]) logits.push_back(static_cast<float>(unit) / 32);
    for (const size_t id : group["absent"]) logits[id] = -std::numeric_limits<float>::infinity();
    for (const size_t id : group["not_numbers"]) logits[id] = std::numeric_limits<float>::quiet_NaN();
    History history;
    for (const int32_t id : group["prompt"]) history.AddPrompt(std::vector<TokenId>{TokenId(id)});
    for (const int32_t id : group["output"]) history.AddOutput(TokenId(id));
    for (const json& golden : group["cases"]) {
      ++draws;
      SCOPED_TRACE(golden["parameters"].dump());
      const auto [params, position, mask] = CaseOf(golden["parameters"], logits.size());
      ASSERT_TRUE(params.Validate(std::ssize(logits)).ok());
      Sampler sampler;
      const auto draw = sampler.Sample(logits, params, history, position, std::nullopt, std::nullopt, mask);
      ASSERT_TRUE(draw.ok()) << draw.status();
      const Trace trace = sampler.Explain(logits, params, history, position, draw->token, false, mask);
      const json& expected = golden["expected"];
      EXPECT_EQ(draw->token.value(), expected["token"]);
      EXPECT_EQ(trace.token, draw->token);
      EXPECT_EQ(trace.how, params.temperature == 0 ? Trace::How::kGreedy : Trace::How::kDrawn);
      ASSERT_EQ(trace.uniform.has_value(), !expected["uniform"].is_null());
      if (trace.uniform.has_value()) {
        EXPECT_EQ(*trace.uniform, expected["uniform"].get<double>());
      }
      EXPECT_THAT((std::vector<int64_t>{trace.vocabulary, trace.after_mask, trace.after_temperature,
                                        trace.after_top_k, trace.after_top_p, trace.after_min_p}),
                  ::testing::ElementsAreArray(expected["counts"].get<std::vector<int64_t>>()));
      if (!expected.contains("likeliest")) continue;
      ++with_tokens;
      ExpectTokens(trace, expected);
    }
  }
  EXPECT_EQ(draws, 1200);
  EXPECT_EQ(with_tokens, 200);
}

}  // namespace
}  // namespace baton::sampling
