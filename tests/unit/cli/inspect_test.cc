#include "cli/model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

model::ModelSummary Example() {
  model::ModelSummary summary;
  summary.config.architecture = "LlamaForCausalLM";
  summary.config.layers = 16;
  summary.config.hidden = 2048;
  summary.config.intermediate = 8192;
  summary.config.heads = 32;
  summary.config.kv_heads = 8;
  summary.config.head_dim = 64;
  summary.config.vocabulary = 128256;
  summary.config.context = 131072;
  summary.config.tied_embeddings = true;
  summary.config.windows.assign(16, 0);
  summary.parameters = 1'235'814'400;
  summary.tensors = 146;
  summary.weight_bytes = 2'471'628'800;
  summary.values_by_type["bf16"] = 1'235'814'400;
  summary.matrix_values = 1'235'746'816;
  summary.matrix_rows = 521'472;
  summary.matrix_bytes = 2 * summary.matrix_values;
  return summary;
}

TEST(InspectTest, ShowsTheFormulaAndItsResult) {
  const std::string text = RenderModel("small", Example(), {.kv = {int64_t{1} << 30}}, {});
  EXPECT_THAT(text, HasSubstr("small: LlamaForCausalLM"));
  EXPECT_THAT(text, HasSubstr("8 KV heads (GQA, 4 to 1)"));
  EXPECT_THAT(text, HasSubstr("1.24 B (1,235,814,400)"));
  EXPECT_THAT(text, HasSubstr("2 x 16 layers x 8 KV heads x 64 head_dim x 4 bytes = 65,536 bytes per token"));
  EXPECT_THAT(text, HasSubstr("1 MiB per block of 16 tokens, 8 GiB per full context"));
  EXPECT_THAT(text, HasSubstr("1 GiB holds 16,384 tokens, 0 full contexts"));
  EXPECT_THAT(text, HasSubstr("x 2 bytes = 32,768 bytes per token"));
  EXPECT_THAT(text,
              HasSubstr("KV in i8      2 x 16 layers x 8 KV heads x (64 head_dim x 8 bits + a scale of 4 "
                        "bytes) = 17,408 bytes per token"));
  EXPECT_THAT(text,
              HasSubstr("KV in i8/i4   16 layers x 8 KV heads x ((64 head_dim x 8 bits + a scale of 4 "
                        "bytes) + (64 head_dim x 4 bits + a scale of 4 bytes)) = 13,312 bytes per token"));
  EXPECT_THAT(text, HasSubstr("with --weights stored 2.30 GiB, f32 4.60 GiB, bf16 2.30 GiB, int8 1.15 GiB"));
}

TEST(InspectTest, ShowsWhereAnswersEnd) {
  model::ModelSummary summary = Example();
  EXPECT_THAT(RenderModel("small", summary, {}, {}), HasSubstr("no token ends an answer"));
  summary.config.eos = {TokenId(128009)};
  EXPECT_THAT(RenderModel("small", summary, {}, {}), HasSubstr("answers end at token 128009\n"));
  summary.config.eos.emplace_back(128001);
  EXPECT_THAT(RenderModel("small", summary, {}, {}), HasSubstr("answers end at tokens 128009, 128001\n"));
  EXPECT_EQ(nlohmann::json(ModelToJson("small", summary, {}))["ends"],
            nlohmann::json::array({128009, 128001}));
}

TEST(InspectTest, SaysWhatIsNoDefault) {
  model::ModelSummary summary = Example();
  EXPECT_FALSE(ModelToJson("small", summary, {}).contains("no_default"));
  summary.defaults.left_out = {"x.json: field \"top_p\" must be a number above 0, not 0"};
  EXPECT_THAT(RenderModel("small", summary, {}, {}),
              HasSubstr("no default    x.json: field \"top_p\" must be"));
  EXPECT_EQ(ModelToJson("small", summary, {})["no_default"].size(), 1u);
}

TEST(InspectTest, SaysWhatContradictsTheConfig) {
  model::ModelSummary summary = Example();
  summary.quantization = "gptq v2, 4 bits, groups of 128";
  EXPECT_FALSE(ModelToJson("small", summary, {}).contains("contradiction"));
  summary.contradiction = "config.json says one thing";
  EXPECT_THAT(RenderModel("small", summary, {}, {}), HasSubstr("config.json says one thing\n"));
  EXPECT_EQ(ModelToJson("small", summary, {})["contradiction"], "config.json says one thing");
}

TEST(InspectTest, JsonHasTheSameNumbers) {
  // Room for two blocks and a half: memory is given out by the block.
  const nlohmann::json json = ModelToJson("small", Example(), {.kv = {65'536 * 40}});
  EXPECT_EQ(json["kv"][0]["dtype"], "f32");
  EXPECT_EQ(json["kv"][0]["bytes_per_token"], 65'536);
  EXPECT_EQ(json["kv"][0]["bytes_per_context"], int64_t{65'536} * 131'072);
  EXPECT_EQ(json["kv"][0]["fits"][0]["tokens"], 32);
  EXPECT_EQ(json["kv"][1]["fits"][0]["tokens"], 80);
  ASSERT_EQ(json["kv"].size(), 5u);
  EXPECT_EQ(json["kv"][3]["dtype"], "i8/i4");
  EXPECT_EQ(json["kv"][3]["value_dtype"], "i4");
  EXPECT_EQ(json["kv"][4]["bytes_per_token"], 16 * 8 * 2 * (32 + 4));
  EXPECT_EQ(json["parameters"], 1'235'814'400);
  ASSERT_EQ(json["weights"].size(), 5u);
  EXPECT_EQ(json["weights"][3]["precision"], "int8");
  EXPECT_EQ(json["weights"][3]["bytes"], 1'235'746'816 + 4 * (521'472 + 67'584));
}

TEST(InspectTest, SaysWhetherItLoads) {
  EXPECT_THAT(RenderModel("small", Example(), {}, {}), HasSubstr("  loads         yes\n"));
  nlohmann::json json = ModelToJson("small", Example(), {});
  EXPECT_EQ(json["loads"], true);
  EXPECT_FALSE(json.contains("problem"));
  model::ModelSummary broken = Example();
  broken.loads = absl::InvalidArgumentError("small: tensor \"model.norm.weight\" [64] is missing");
  EXPECT_THAT(RenderModel("small", broken, {}, {}),
              HasSubstr("  loads         no: small: tensor \"model.norm.weight\" [64] is missing\n"));
  json = ModelToJson("small", broken, {});
  EXPECT_EQ(json["loads"], false);
  EXPECT_EQ(json["problem"], "small: tensor \"model.norm.weight\" [64] is missing");
}

TEST(InspectTest, TellsWhatATokenUsesOfAMixture) {
  const auto summary = model::ModelSummary::Load("tests/golden/models/data/glm4-moe");
  ASSERT_TRUE(summary.ok()) << summary.status();
  const std::string text = RenderModel("glm", *summary, {.experts = {65'536, 1 << 20}}, {});
  EXPECT_THAT(text,
              HasSubstr("  experts       3 of 12 chosen, width 24, in 2 of 3 layers; by sigmoid in 2 of 4 "
                        "groups, a shared one of width 48\n"));
  EXPECT_THAT(text, HasSubstr("parameters per token"));
  EXPECT_THAT(text,
              HasSubstr("  per expert    of one layer: stored 9 KiB, f32 18 KiB, bf16 9 KiB, int8 4.94 KiB"));
  const nlohmann::json json = ModelToJson("glm", *summary, {.experts = {65'536}});
  EXPECT_EQ(json["experts"]["chosen"], 3);
  EXPECT_EQ(json["experts"]["layers"], 2);
  EXPECT_EQ(json["weights"][0]["bytes_per_expert"], 9216);
  // 24 experts are 216 KiB as they are stored, and 65,536 bytes have room for 7 of them.
  EXPECT_THAT(text, HasSubstr("  --expert-memory 64 KiB holds stored 7 of 24 (29%, weights "));
  EXPECT_THAT(text, HasSubstr("  --expert-memory 1 MiB holds stored 24 of 24 (100%, weights "));
  EXPECT_EQ(json["experts"]["all"], 24);
  EXPECT_EQ(json["weights"][0]["expert_memory"][0]["resident"], 7);
  EXPECT_EQ(json["weights"][0]["bytes"].get<int64_t>() -
                json["weights"][0]["expert_memory"][0]["bytes"].get<int64_t>(),
            17 * 9216);
  // 9 of 12 experts, of 3 matrices of 64 x 24, in two layers.
  EXPECT_EQ(json["parameters"].get<int64_t>() - json["active_parameters"].get<int64_t>(),
            2 * 9 * 3 * 64 * 24);
  EXPECT_FALSE(ModelToJson("small", Example(), {}).contains("experts"));
}

TEST(InspectTest, NamesWindowsAndScaling) {
  model::ModelSummary summary = Example();
  summary.config.kv_heads = 32;
  summary.config.windows.assign(16, 4096);
  summary.config.rope_scaling.type = model::RopeScaling::Type::kYarn;
  summary.config.rope_scaling.factor = 4;
  const std::string text = RenderModel("m", summary, {}, {});
  EXPECT_THAT(text, HasSubstr("MHA"));
  EXPECT_THAT(text, HasSubstr("yarn scaling by 4"));
  EXPECT_THAT(text,
              HasSubstr("16 of 16 layers see the last 4,096 tokens (KV keeps all tokens of all layers)"));
  summary.config.rope_scaling.type = model::RopeScaling::Type::kDynamic;
  EXPECT_THAT(RenderModel("m", summary, {}, {}), HasSubstr("dynamic scaling, which begins beyond them"));
  summary.config.rope_scaling.type = model::RopeScaling::Type::kLongRope;
  summary.config.rope_scaling.original_context = summary.config.context;
  summary.config.rope_scaling.factors = {1, 2};
  EXPECT_THAT(RenderModel("m", summary, {}, {}), HasSubstr("longrope scaling by 4, its short factors"));
}

TEST(InspectTest, SaysThatImagesAreLeftOut) {
  model::ModelSummary summary = Example();
  EXPECT_THAT(RenderModel("m", summary, {}, {}), testing::Not(HasSubstr("images")));
  summary.config.images_left_out = true;
  EXPECT_THAT(RenderModel("m", summary, {}, {}), HasSubstr("left out"));
}

}  // namespace
}  // namespace baton::cli
