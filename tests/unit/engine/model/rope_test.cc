#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

using nlohmann::json;

ModelConfig Config(int64_t head_dim, int64_t context, const json& rope) {
  const auto config = ModelConfig::FromJson(json{
      {"architectures", {"LlamaForCausalLM"}},
      {"vocab_size", 8},
      {"hidden_size", 64},
      {"intermediate_size", 8},
      {"num_hidden_layers", 1},
      {"num_attention_heads", 1},
      {"head_dim", head_dim},
      {"max_position_embeddings", context},
      {"rms_norm_eps", 1e-6},
      {"rope_parameters", rope}}.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

// Against transformers at the sizes of real models. It computes in float32 where we round at the end, so
// frequencies differ by a few units in the last place (2^-24 each).
TEST(RopeTest, FrequenciesAreThoseOfTransformers) {
  const auto cases =
      json::parse(std::ifstream(std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/rope.json"));
  EXPECT_EQ(cases.size(), 8u);
  for (const auto& [name, golden] : cases.items()) {
    SCOPED_TRACE(name);
    const RopeFrequencies ours = FrequenciesFor(
        Config(golden["head_dim"], golden["max_position_embeddings"], golden["rope_parameters"]));
    const std::vector<double> expected = golden["inverse_frequencies"];
    ASSERT_EQ(ours.inverse.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(ours.inverse[i] / expected[i], 1, 5e-7) << i;
    }
    EXPECT_FLOAT_EQ(ours.scale, golden["scale"].get<float>());
  }
}

TEST(RopeTest, TableHoldsTheAnglesOfEveryPosition) {
  const ModelConfig config = Config(16, 300,
                                    {{"rope_type", "yarn"},
                                     {"rope_theta", 10000.0},
                                     {"factor", 4.0},
                                     {"original_max_position_embeddings", 75}});
  const RopeFrequencies frequencies = FrequenciesFor(config);
  const auto angles = RopeAngles::Create(config);
  ASSERT_TRUE(angles.ok()) << angles.status();
  const kernels::RopeTable table = angles->table();
  EXPECT_EQ(table.half_dim, 8);
  ASSERT_EQ(table.cos.size(), 300u * 8);
  ASSERT_EQ(table.sin.size(), 300u * 8);
  EXPECT_EQ(angles->bytes(), 300 * 8 * 2 * 4);
  const double scale = 0.1 * std::log(4.0) + 1;
  for (size_t position : {0, 1, 74, 299}) {
    for (size_t i = 0; i < 8; ++i) {
      const double angle = static_cast<double>(position) * frequencies.inverse[i];
      EXPECT_NEAR(table.cos[position * 8 + i], std::cos(angle) * scale, 3e-5);
      EXPECT_NEAR(table.sin[position * 8 + i], std::sin(angle) * scale, 3e-5);
    }
  }
}

// A position's angles may not depend on how long the sequence is, or KV that was computed would turn wrong.
// No sequence is longer than the context here, up to which transformers leaves theta as it is, whatever the
// original length.
TEST(RopeTest, DynamicScalingBeginsBeyondTheContext) {
  const auto plain = FrequenciesFor(Config(64, 2048, {{"rope_type", "default"}})).inverse;
  json dynamic = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  EXPECT_EQ(FrequenciesFor(Config(64, 2048, dynamic)).inverse, plain);
  const std::string canonical = Config(64, 2048, dynamic).Canonical();
  dynamic["original_max_position_embeddings"] = 1024;
  EXPECT_EQ(FrequenciesFor(Config(64, 2048, dynamic)).inverse, plain);
  EXPECT_EQ(Config(64, 2048, dynamic).Canonical(), canonical) << "they compute the same";
}

TEST(RopeTest, RefusesATableThatIsTooLarge) {
  const auto angles = RopeAngles::Create(Config(128, 1 << 26, {{"rope_type", "default"}}));
  EXPECT_TRUE(absl::IsResourceExhausted(angles.status()));
  EXPECT_EQ(
      angles.status().message(),
      "rope angles for a context of 67108864 take more than 4294967296 bytes: lower max_position_embeddings "
      "in config.json");
}

}  // namespace
}  // namespace baton::model
