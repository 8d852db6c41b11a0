// Options of single families: what is read, and what is refused by name.
#include "text/config/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "engine/model/rope.h"
#include "nlohmann/json.hpp"
#include "text/config/config.h"

namespace baton::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

// The config.json of a golden model.
json GoldenConfig(const std::string& name) {
  return json::parse(std::ifstream(BATON_SOURCE_DIR "/tests/golden/models/data/" + name + "/config.json"));
}

std::string ProblemOf(const json& config) {
  return std::string(ModelConfig::FromJson(config.dump()).status().message());
}

TEST(FamilyTest, MistralThreeIsItsTextPart) {
  json config = GoldenConfig("mistral3");
  const auto read = ModelConfig::FromJson(config.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->architecture, "Ministral3ForCausalLM");
  EXPECT_THAT(read->Describe(), EndsWith(", images left out"));
  EXPECT_THAT(read->eos, ElementsAre(TokenId(2)));
  // The whole model's word on ties counts, then that of the text part.
  EXPECT_FALSE(read->tied_embeddings);
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(ModelConfig::FromJson(config.dump())->tied_embeddings);
  config.erase("tie_word_embeddings");
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(ModelConfig::FromJson(config.dump())->tied_embeddings);

  config["text_config"]["hidden_act"] = "gelu";
  EXPECT_EQ(ProblemOf(config),
            "config.json: text_config: field \"hidden_act\" is \"gelu\": only silu is known");
  config["text_config"]["model_type"] = "qwen2";
  EXPECT_THAT(ProblemOf(config),
              HasSubstr("\"text_config\" must have a \"model_type\" of mistral or ministral3"));
  config.erase("text_config");
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"text_config\" must have"));
}

TEST(FamilyTest, OnlyMinistralScalesQueries) {
  json config = GoldenConfig("ministral3");
  EXPECT_EQ(ModelConfig::FromJson(config.dump())->query_beta, 0.3);
  config["rope_parameters"].erase("llama_4_scaling_beta");
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"llama_4_scaling_beta\" is missing"));
  config.erase("rope_parameters");
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"rope_parameters\" is missing"));
  json other = GoldenConfig("arcee");
  other["rope_parameters"]["llama_4_scaling_beta"] = 0.1;
  EXPECT_THAT(ProblemOf(other), HasSubstr("\"llama_4_scaling_beta\" is not known"));
}

TEST(FamilyTest, FixedOptionsAreRefusedWithAnotherValue) {
  json config = GoldenConfig("hunyuan-v1");
  config["use_qk_norm"] = true;
  config["use_cla"] = false;
  EXPECT_EQ(ProblemOf(config), "");
  config["use_cla"] = true;
  EXPECT_EQ(ProblemOf(config),
            "config.json: field \"use_cla\" is true: only false is known for HunYuanDenseV1ForCausalLM");
  json phi = GoldenConfig("phi3-short");
  phi["attention_bias"] = true;
  EXPECT_THAT(ProblemOf(phi), HasSubstr("\"attention_bias\" is true"));
}

// theta 20000 * 30^(20 / 18), at every length.
TEST(FamilyTest, AnAlphaOfHunyuanStretchesThetaOnce) {
  json config = GoldenConfig("hunyuan-v1");
  const auto read = ModelConfig::FromJson(config.dump());
  EXPECT_EQ(read->rope_scaling.type, RopeScaling::Type::kNone);
  EXPECT_NEAR(read->rope_theta, 875539.7, 0.1);
  json llama = GoldenConfig("llama-dynamic");
  llama["rope_parameters"]["alpha"] = 1000.0;
  EXPECT_THAT(ProblemOf(llama), HasSubstr("\"alpha\" is not known"));
}

TEST(FamilyTest, OlmoThreeHasARopeForEachKindOfLayer) {
  json config = GoldenConfig("olmo3");
  const auto read = ModelConfig::FromJson(config.dump());
  EXPECT_EQ(read->rope_theta, 1e6);
  EXPECT_EQ(read->window_theta, 30000);
  EXPECT_THAT(OtherLayers(*read), ElementsAre(false, true, false));
  // As transformers 4 wrote it: the scaling is that of full layers.
  json old = config;
  old["rope_scaling"] = old["rope_parameters"]["full_attention"];
  old["rope_scaling"].erase("rope_theta");
  old["rope_theta"] = 50000.0;
  old.erase("rope_parameters");
  const auto v4 = ModelConfig::FromJson(old.dump());
  ASSERT_TRUE(v4.ok()) << v4.status();
  EXPECT_EQ(v4->rope_scaling.type, RopeScaling::Type::kYarn);
  EXPECT_EQ(v4->rope_theta, 50000);
  EXPECT_EQ(v4->window_theta, 50000);
  // One table is enough for two equal ropes.
  EXPECT_THAT(OtherLayers(*ModelConfig::FromJson(GoldenConfig("olmo3-defaults").dump())), ElementsAre());

  json scaled = config;
  scaled["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(ProblemOf(scaled), HasSubstr("sliding_attention: field \"rope_type\" is \"linear\""));
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_THAT(ProblemOf(config), HasSubstr("must have full_attention and sliding_attention"));
}

TEST(FamilyTest, LongRopeTakesItsFactorsByTheContext) {
  json config = GoldenConfig("phi3-long");
  const auto factors = [](const json& of) { return ModelConfig::FromJson(of.dump())->rope_scaling.factors; };
  EXPECT_THAT(factors(config), ElementsAre(1, 1.5, 2, 4, 6, 9));
  config["max_position_embeddings"] = 32;
  EXPECT_THAT(factors(config), ElementsAre(1, 1.1, 1.2, 1.3, 1.5, 1.7));
  config["rope_parameters"]["rope_type"] = "su";
  EXPECT_EQ(ProblemOf(config), "");
  config["rope_parameters"]["long_factor"].push_back(10.0);
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"long_factor\" must be a list of 6 positive numbers"));
  config["rope_parameters"]["long_factor"] = {1, 2, 3, 4, 5, -6};
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"long_factor\" must be a list of 6 positive numbers"));
  config = GoldenConfig("phi3-long");
  config["original_max_position_embeddings"] = 1;
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"original_max_position_embeddings\" must be above 1"));
  config = GoldenConfig("phi3-long");
  config.erase("original_max_position_embeddings");
  config["rope_parameters"].erase("original_max_position_embeddings");
  EXPECT_THAT(ProblemOf(config), HasSubstr("\"original_max_position_embeddings\" is missing"));
}

}  // namespace
}  // namespace baton::model
