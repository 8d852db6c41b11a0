#include "text/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "text/config/family.h"

namespace baton::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 1000},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5}};
}

json Family(const char* architecture) {
  json config = Llama();
  config["architectures"] = {architecture};
  return config;
}

ModelConfig Read(const json& config) {
  auto read = ModelConfig::FromJson(config.dump());
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : ModelConfig();
}

std::string MessageFor(const json& config) {
  const auto read = ModelConfig::FromJson(config.dump());
  EXPECT_FALSE(read.ok()) << config.dump();
  return std::string(read.status().message());
}

TEST(ModelConfigTest, ReadsAPlainLlama) {
  const ModelConfig config = Read(Llama());
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocabulary, 1000);
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.intermediate, 160);
  EXPECT_EQ(config.layers, 4);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.context, 2048);
  EXPECT_EQ(config.rms_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::kNone);
  EXPECT_FALSE(config.tied_embeddings || config.qkv_bias || config.output_bias || config.mlp_bias ||
               config.qk_norm);
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(config.Describe(),
            "LlamaForCausalLM, 4 layers, hidden 64, 8 heads, 2 KV heads, vocabulary 1000, context 2048");
}

TEST(ModelConfigTest, NamesEveryMissingField) {
  const json all = Llama();
  for (const auto& [field, value] : all.items()) {
    if (field == "num_key_value_heads") continue;  // by default as many as heads
    json config = Llama();
    config.erase(field);
    const std::string missing =
        field == "architectures" ? "must be a list of one name, or \"model_type\" must be given in its place"
                                 : "is missing";
    EXPECT_EQ(MessageFor(config), "config.json: field \"" + field + "\" " + missing);
  }
  json mha = Llama();
  mha.erase("num_key_value_heads");
  EXPECT_EQ(Read(mha).kv_heads, 8);
}

TEST(ModelConfigTest, TakesTheModelTypeWhereNoArchitectureIsNamed) {
  for (const auto& [type, architecture] :
       {std::pair{"llama", "LlamaForCausalLM"}, std::pair{"mistral", "MistralForCausalLM"},
        std::pair{"qwen2", "Qwen2ForCausalLM"}, std::pair{"qwen3", "Qwen3ForCausalLM"}}) {
    const ModelConfig named = Read(Family(architecture));
    json config = Llama();
    config["model_type"] = type;
    for (const json& architectures : {json(), json::array()}) {
      config["architectures"] = architectures;
      EXPECT_EQ(Read(config).Canonical(), named.Canonical());
    }
    config.erase("architectures");
    EXPECT_EQ(Read(config).Canonical(), named.Canonical());
    // An architecture that is named counts alone.
    config["architectures"] = {"Qwen3ForCausalLM"};
    EXPECT_EQ(Read(config).architecture, "Qwen3ForCausalLM");
    config["architectures"] = "LlamaForCausalLM";
    EXPECT_EQ(MessageFor(config), "config.json: field \"architectures\" must be a list of one name");
  }
  json config = Llama();
  config.erase("architectures");
  config["model_type"] = "gemma3";
  std::string types, architectures;
  for (const model::Family& family : Families()) {
    types += (types.empty() ? "" : ", ") + std::string(family.model_type);
    architectures += (architectures.empty() ? "" : ", ") + std::string(family.architecture);
  }
  EXPECT_EQ(MessageFor(config), "config.json: unknown model_type \"gemma3\": Baton runs " + types);
  config.erase("model_type");
  config["architectures"] = {"GemmaForCausalLM"};
  EXPECT_EQ(MessageFor(config),
            "config.json: unknown architecture \"GemmaForCausalLM\": Baton runs " + architectures);
  config.erase("architectures");
  config["model_type"] = {"llama"};
  EXPECT_EQ(
      MessageFor(config),
      "config.json: field \"architectures\" must be a list of one name, or \"model_type\" must be given "
      "in its place");
}

TEST(ModelConfigTest, RefusesWhatItDoesNotKnowByName) {
  json config = Llama();
  config["hidden_act"] = "gelu";
  EXPECT_EQ(MessageFor(config), "config.json: field \"hidden_act\" is \"gelu\": only silu is known");
  config = Llama();
  config["rope_scaling"] = {{"rope_type", "proportional"}, {"factor", 2.0}};
  EXPECT_EQ(MessageFor(config),
            "config.json: rope_scaling: field \"rope_type\" is \"proportional\": known are default, linear, "
            "dynamic, "
            "yarn, llama3, longrope");
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"mrope_section", {1, 2}}};
  EXPECT_EQ(MessageFor(config), "config.json: rope_scaling: field \"mrope_section\" is not known");
  config = Llama();
  config["quantization_config"] = {{"quant_method", "aqlm"}};
  EXPECT_THAT(MessageFor(config),
              testing::HasSubstr("quantization_config: field \"quant_method\" is \"aqlm\""));
  config = Llama();
  config["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(MessageFor(config),
              testing::HasSubstr("\"partial_rotary_factor\" other than 1 is not supported"));
}

TEST(ModelConfigTest, RefusesValuesThatCanNotBe) {
  const auto with = [](const char* field, const json& value) {
    json config = Llama();
    config[field] = value;
    return MessageFor(config);
  };
  EXPECT_EQ(with("num_hidden_layers", 0),
            "config.json: field \"num_hidden_layers\" must be an integer from 1 to 4096, not 0");
  EXPECT_EQ(with("hidden_size", "64"),
            "config.json: field \"hidden_size\" must be an integer from 1 to 1048576, not \"64\"");
  EXPECT_EQ(with("hidden_size", 64.0),
            "config.json: field \"hidden_size\" must be an integer from 1 to 1048576, not 64.0");
  EXPECT_EQ(
      with("vocab_size", uint64_t{1} << 63),
      "config.json: field \"vocab_size\" must be an integer from 1 to 16777216, not 9223372036854775808");
  EXPECT_EQ(with("num_key_value_heads", 3),
            "config.json: field \"num_key_value_heads\" is 3, which does not divide num_attention_heads 8");
  EXPECT_THAT(with("num_attention_heads", 6), testing::HasSubstr("head_dim is not given"));
  EXPECT_THAT(with("head_dim", 7), testing::HasSubstr("field \"head_dim\" must be even"));
  EXPECT_THAT(with("rms_norm_eps", 0), testing::HasSubstr("\"rms_norm_eps\" must be a number above 0"));
  EXPECT_THAT(with("rope_theta", -1), testing::HasSubstr("\"rope_theta\" must be a number above 1"));
  EXPECT_THAT(with("tie_word_embeddings", 1), testing::HasSubstr("must be true or false, not 1"));
  EXPECT_THAT(with("eos_token_id", 1000),
              testing::HasSubstr("\"eos_token_id\" must be an integer from 0 to 999"));
  EXPECT_THAT(with("architectures", {"LlamaForCausalLM", "LlamaForCausalLM"}),
              testing::HasSubstr("one name"));
  EXPECT_EQ(std::string(ModelConfig::FromJson("[]").status().message()),
            "config.json: not a JSON object but []");
  EXPECT_THAT(std::string(ModelConfig::FromJson("{").status().message()),
              testing::HasSubstr("config.json: not valid JSON at byte "));
  EXPECT_EQ(std::string(ModelConfig::FromJson(R"({"a":{"b":1,"b":2}})").status().message()),
            "config.json: key \"b\" stands twice in one object");
}

TEST(ModelConfigTest, RefusesNestingThatCouldRunOffTheStack) {
  const std::string deep = R"({"hidden_size":)" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  EXPECT_EQ(std::string(ModelConfig::FromJson(deep).status().message()),
            "config.json: nested more than 64 deep");
}

TEST(ModelConfigTest, ReadsRopeAsBothTransformers4And5WriteIt) {
  json v4 = Llama();
  v4["rope_theta"] = 500000.0;
  v4["rope_scaling"] = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 512}};
  json v5 = Llama();
  v5["rope_parameters"] = v4["rope_scaling"];
  v5["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(Read(v4).Canonical(), Read(v5).Canonical());
  const ModelConfig config = Read(v4);
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::kLlama3);
  EXPECT_EQ(config.rope_scaling.factor, 8);
  EXPECT_EQ(config.rope_scaling.original_context, 512);
  EXPECT_EQ(config.rope_theta, 500000);

  v4["rope_scaling"].erase("low_freq_factor");
  EXPECT_EQ(MessageFor(v4), "config.json: rope_scaling: field \"low_freq_factor\" is missing");
}

TEST(ModelConfigTest, ReadsTheOlderNamesOfRope) {
  json config = Llama();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4}, {"attention_factor", nullptr}};
  EXPECT_EQ(Read(config).rope_scaling.type, RopeScaling::Type::kYarn);
  EXPECT_EQ(Read(config).rope_scaling.original_context, 2048);
  EXPECT_EQ(Read(config).rope_scaling.beta_fast, 32);
  config["original_max_position_embeddings"] = 1024;
  EXPECT_EQ(Read(config).rope_scaling.original_context, 1024);
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(Read(config).rope_scaling.type, RopeScaling::Type::kNone);
}

TEST(ModelConfigTest, GivesEachFamilyItsOptions) {
  EXPECT_TRUE(Read(Family("Qwen2ForCausalLM")).qkv_bias);
  EXPECT_FALSE(Read(Family("Qwen2ForCausalLM")).output_bias);
  EXPECT_TRUE(Read(Family("Qwen3ForCausalLM")).qk_norm);
  EXPECT_EQ(Read(Family("Qwen3ForCausalLM")).head_dim, 128);
  json biased = Llama();
  biased["attention_bias"] = true;
  biased["mlp_bias"] = true;
  EXPECT_TRUE(Read(biased).qkv_bias && Read(biased).output_bias && Read(biased).mlp_bias);
}

TEST(ModelConfigTest, ReadsSlidingWindows) {
  json mistral = Family("MistralForCausalLM");
  EXPECT_THAT(Read(mistral).windows, ElementsAre(4096, 4096, 4096, 4096));
  mistral["sliding_window"] = 100;
  EXPECT_THAT(Read(mistral).windows, ElementsAre(100, 100, 100, 100));
  mistral["sliding_window"] = nullptr;
  EXPECT_THAT(Read(mistral).windows, ElementsAre(0, 0, 0, 0));

  json qwen = Family("Qwen2ForCausalLM");
  qwen["sliding_window"] = 100;
  qwen["max_window_layers"] = 3;
  EXPECT_THAT(Read(qwen).windows, ElementsAre(0, 0, 0, 0));
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(Read(qwen).windows, ElementsAre(0, 0, 0, 100));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(Read(qwen).windows, ElementsAre(100, 0, 100, 0));
  qwen["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(MessageFor(qwen), "config.json: field \"layer_types\" must list 4 layers");
  qwen["layer_types"] = {"full_attention", "linear_attention", "full_attention", "full_attention"};
  EXPECT_THAT(MessageFor(qwen), testing::HasSubstr("\"layer_types\" has \"linear_attention\" for layer 1"));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "full_attention"};
  qwen["use_sliding_window"] = false;
  EXPECT_THAT(MessageFor(qwen), testing::HasSubstr("\"layer_types\" has \"sliding_attention\" for layer 0"));
}

TEST(ModelConfigTest, ReadsEndTokensAndDtype) {
  json config = Llama();
  EXPECT_TRUE(Read(config).eos.empty());
  config["eos_token_id"] = 7;
  config["torch_dtype"] = "bfloat16";
  EXPECT_THAT(Read(config).eos, ElementsAre(TokenId(7)));
  EXPECT_EQ(Read(config).weights_dtype, "bfloat16");
  config["eos_token_id"] = {7, 9};
  config["dtype"] = "float16";
  EXPECT_THAT(Read(config).eos, ElementsAre(TokenId(7), TokenId(9)));
  EXPECT_EQ(Read(config).weights_dtype, "float16");
  config["eos_token_id"] = {7, "9"};
  EXPECT_THAT(MessageFor(config),
              testing::HasSubstr("\"eos_token_id\" must hold integers from 0 to 999, not \"9\""));
}

TEST(ModelConfigTest, CanonicalTextTellsComputationsApart) {
  const std::string plain = Read(Llama()).Canonical();
  json same = Llama();
  same["eos_token_id"] = 5;
  same["torch_dtype"] = "bfloat16";
  EXPECT_EQ(Read(same).Canonical(), plain);
  const std::pair<const char*, json> changes[] = {{"vocab_size", 1001},
                                                  {"intermediate_size", 161},
                                                  {"num_hidden_layers", 5},
                                                  {"num_key_value_heads", 4},
                                                  {"head_dim", 16},
                                                  {"max_position_embeddings", 4096},
                                                  {"rms_norm_eps", 1.1e-5},
                                                  {"rope_theta", 10000.5},
                                                  {"attention_bias", true},
                                                  {"mlp_bias", true},
                                                  {"tie_word_embeddings", true},
                                                  {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}};
  for (const auto& [field, value] : changes) {
    json changed = Llama();
    changed[field] = value;
    EXPECT_NE(Read(changed).Canonical(), plain) << field;
  }
}

TEST(ModelConfigTest, CountsParameters) {
  // Llama 3.1 8B: 8,030,261,248 parameters.
  json config = Llama();
  config.update(json{{"vocab_size", 128256},
                     {"hidden_size", 4096},
                     {"intermediate_size", 14336},
                     {"num_hidden_layers", 32},
                     {"num_attention_heads", 32},
                     {"num_key_value_heads", 8}});
  EXPECT_EQ(Read(config).parameters(), 8030261248);
  // Qwen2.5 0.5B: 494,032,768.
  config = Family("Qwen2ForCausalLM");
  config.update(json{{"vocab_size", 151936},
                     {"hidden_size", 896},
                     {"intermediate_size", 4864},
                     {"num_hidden_layers", 24},
                     {"num_attention_heads", 14},
                     {"tie_word_embeddings", true}});
  EXPECT_EQ(Read(config).parameters(), 494032768);
  // Qwen3 0.6B: 596,049,920.
  config = Family("Qwen3ForCausalLM");
  config.update(json{{"vocab_size", 151936},
                     {"hidden_size", 1024},
                     {"intermediate_size", 3072},
                     {"num_hidden_layers", 28},
                     {"num_attention_heads", 16},
                     {"num_key_value_heads", 8},
                     {"tie_word_embeddings", true}});
  EXPECT_EQ(Read(config).parameters(), 596049920);
}

json Mixture(const char* architecture) {
  json config = Family(architecture);
  const std::string name = architecture;
  config.update(json{{"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  config[name == "MixtralForCausalLM"   ? "num_local_experts"
         : name == "Glm4MoeForCausalLM" ? "n_routed_experts"
                                        : "num_experts"] = 8;
  if (name == "Qwen2MoeForCausalLM") config["shared_expert_intermediate_size"] = 40;
  return config;
}

TEST(ModelConfigTest, ReadsMixturesOfExperts) {
  json qwen3 = Mixture("Qwen3MoeForCausalLM");
  qwen3["mlp_only_layers"] = {2};
  qwen3["decoder_sparse_step"] = 2;
  ModelConfig config = Read(qwen3);
  EXPECT_THAT(config.expert_layers, ElementsAre(false, true, false, true));
  EXPECT_EQ(config.experts.experts, 8);
  EXPECT_EQ(config.experts.chosen, 2);
  EXPECT_EQ(config.experts.width, 24);
  EXPECT_FALSE(config.experts.normalize || config.experts.sigmoid || config.experts.shared_width > 0);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_THAT(config.Describe(), testing::HasSubstr("2 of 8 experts"));
  config = Read(Mixture("MixtralForCausalLM"));
  EXPECT_TRUE(config.experts.normalize);
  EXPECT_EQ(config.experts.width, 160);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0, 0));
  config = Read(Mixture("Qwen2MoeForCausalLM"));
  EXPECT_TRUE(config.qkv_bias && config.experts.shared_gated);
  EXPECT_EQ(config.experts.shared_width, 40);
  config = Read(Mixture("OlmoeForCausalLM"));
  EXPECT_TRUE(config.qk_norm && config.wide_qk_norm);
  json glm = Mixture("Glm4MoeForCausalLM");
  glm.update(
      json{{"n_group", 4}, {"topk_group", 2}, {"routed_scaling_factor", 2.5}, {"n_shared_experts", 2}});
  config = Read(glm);
  EXPECT_TRUE(config.experts.sigmoid && config.experts.choice_bias && config.experts.normalize);
  EXPECT_THAT(config.expert_layers, ElementsAre(false, true, true, true));
  EXPECT_EQ(config.experts.shared_width, 48);
  EXPECT_EQ(config.experts.scale, 2.5);
  EXPECT_EQ(config.rotary_dim, 4);
}

// gpt-oss-20b, as it is published, but for the number of layers.
json GptOss() {
  return json::parse(R"({
    "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
    "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
    "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "num_experts_per_tok": 4, "num_hidden_layers": 4, "num_key_value_heads": 8, "num_local_experts": 32,
    "pad_token_id": 199999, "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn",
    "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
    "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
    "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
    "vocab_size": 201088})");
}

TEST(ModelConfigTest, ReadsGptOssAsItIsPublished) {
  const ModelConfig config = Read(GptOss());
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.sinks);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_THAT(config.windows, ElementsAre(128, 0, 128, 0));
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::kYarn);
  EXPECT_FALSE(config.rope_scaling.truncate);
  EXPECT_EQ(config.rope_scaling.original_context, 4096);
  const ExpertConfig& experts = config.experts;
  EXPECT_TRUE(experts.late_softmax && experts.biased && experts.fused && !experts.normalize);
  EXPECT_EQ(experts.experts, 32);
  EXPECT_EQ(experts.chosen, 4);
  EXPECT_EQ(experts.width, 2880);
  EXPECT_EQ(experts.limit, 7);
  EXPECT_EQ(experts.slope, 1.702);
  EXPECT_THAT(config.expert_layers, ElementsAre(true, true, true, true));
  // Missing fields have the defaults of transformers.
  json bare = GptOss();
  for (const char* field : {"attention_bias", "head_dim", "layer_types", "sliding_window", "swiglu_limit",
                            "rope_theta", "architectures"}) {
    bare.erase(field);
  }
  EXPECT_EQ(Read(bare).Canonical(), config.Canonical());
  bare["sliding_window"] = nullptr;
  EXPECT_THAT(Read(bare).windows, ElementsAre(0, 0, 0, 0));
  // gpt-oss-20b: 20,914,757,184 parameters.
  json whole = GptOss();
  whole["num_hidden_layers"] = 24;
  whole.erase("layer_types");
  EXPECT_EQ(Read(whole).parameters(), 20914757184);
  EXPECT_EQ(Read(whole).active_parameters(), 4187440704);
}

TEST(ModelConfigTest, RefusesGptOssThatIsNot) {
  const auto with = [](const json& fields) {
    json config = GptOss();
    config.update(fields);
    return MessageFor(config);
  };
  using testing::HasSubstr;
  EXPECT_THAT(with({{"rope_scaling", nullptr}}),
              HasSubstr("is missing: set it as the published model has it"));
  EXPECT_THAT(with({{"swiglu_limit", 0}}), HasSubstr("\"swiglu_limit\""));
  EXPECT_THAT(with({{"hidden_act", "gelu"}}), HasSubstr("only silu is known"));
  EXPECT_THAT(with({{"layer_types", {"full_attention"}}}), HasSubstr("must list 4 layers"));
  EXPECT_THAT(with({{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}}}),
              HasSubstr("awq, 4 bits, groups of 128 of GptOssForCausalLM is not known: mxfp4 goes with "
                        "GptOssForCausalLM"));
  json llama = Llama();
  llama["quantization_config"] = {{"quant_method", "mxfp4"}};
  EXPECT_THAT(MessageFor(llama), HasSubstr("mxfp4 of LlamaForCausalLM is not known"));
  const std::string plain = Read(GptOss()).Canonical();
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"swiglu_limit", 6}, {"swiglu_alpha", 1.7}, {"sliding_window", 64}}) {
    json changed = GptOss();
    changed[field] = value;
    EXPECT_NE(Read(changed).Canonical(), plain) << field;
  }
}

TEST(ModelConfigTest, RefusesMixturesThatCanNotBe) {
  const auto with = [](const char* architecture, const json& fields) {
    json config = Mixture(architecture);
    config.update(fields);
    return MessageFor(config);
  };
  using testing::HasSubstr;
  EXPECT_THAT(with("OlmoeForCausalLM", {{"clip_qkv", 8.0}}), HasSubstr("\"clip_qkv\" is not supported"));
  EXPECT_THAT(with("Qwen3MoeForCausalLM", {{"use_sliding_window", true}}),
              HasSubstr("\"use_sliding_window\" is not supported for Qwen3MoeForCausalLM"));
  EXPECT_THAT(with("Qwen3MoeForCausalLM", {{"num_experts_per_tok", 9}}),
              HasSubstr("is 9, more than the 8 experts that may be chosen"));
  EXPECT_THAT(with("Qwen3MoeForCausalLM", {{"mlp_only_layers", {4}}}), HasSubstr("\"mlp_only_layers\""));
  EXPECT_THAT(with("MixtralForCausalLM", {{"num_local_experts", nullptr}}),
              HasSubstr("\"num_local_experts\""));
  EXPECT_THAT(with("Glm4MoeForCausalLM", {{"n_group", 3}}),
              HasSubstr("\"n_group\" is 3, which does not split 8 experts into groups of at least two"));
  EXPECT_THAT(with("Glm4MoeForCausalLM", {{"n_group", 2}, {"topk_group", 3}}),
              HasSubstr("\"topk_group\" is 3, more than n_group 2"));
  EXPECT_THAT(with("Glm4MoeForCausalLM", {{"n_group", 4}, {"topk_group", 1}, {"num_experts_per_tok", 3}}),
              HasSubstr("is 3, more than the 2 experts that may be chosen"));
  EXPECT_THAT(with("Glm4MoeForCausalLM", {{"partial_rotary_factor", 0.2}}),
              HasSubstr("leaves no even number of 8 values to turn"));
}

TEST(ModelConfigTest, CanonicalTextTellsMixturesApart) {
  const std::string plain = Read(Mixture("Glm4MoeForCausalLM")).Canonical();
  const std::pair<const char*, json> changes[] = {
      {"n_routed_experts", 16},  {"num_experts_per_tok", 3},   {"moe_intermediate_size", 32},
      {"norm_topk_prob", false}, {"routed_scaling_factor", 2}, {"n_group", 2},
      {"n_shared_experts", 2},   {"first_k_dense_replace", 2}, {"partial_rotary_factor", 1}};
  for (const auto& [field, value] : changes) {
    json changed = Mixture("Glm4MoeForCausalLM");
    changed[field] = value;
    EXPECT_NE(Read(changed).Canonical(), plain) << field;
  }
}

TEST(ModelConfigTest, CountsParametersOfMixtures) {
  // Qwen3-30B-A3B: 30,532,122,624 parameters.
  json config = Mixture("Qwen3MoeForCausalLM");
  config.update(json{{"vocab_size", 151936},
                     {"hidden_size", 2048},
                     {"num_hidden_layers", 48},
                     {"num_attention_heads", 32},
                     {"num_key_value_heads", 4},
                     {"head_dim", 128},
                     {"num_experts", 128},
                     {"num_experts_per_tok", 8},
                     {"moe_intermediate_size", 768}});
  EXPECT_EQ(Read(config).parameters(), 30532122624);
  EXPECT_EQ(Read(config).parameters() - Read(config).active_parameters(), 48LL * 120 * 3 * 2048 * 768);
  // OLMoE-1B-7B: 6,919,161,856.
  config = Mixture("OlmoeForCausalLM");
  config.update(json{{"vocab_size", 50304},
                     {"hidden_size", 2048},
                     {"intermediate_size", 1024},
                     {"num_hidden_layers", 16},
                     {"num_attention_heads", 16},
                     {"num_key_value_heads", 16},
                     {"num_experts", 64},
                     {"num_experts_per_tok", 8}});
  EXPECT_EQ(Read(config).parameters(), 6919161856);
}

// transformers reads none of these of a Llama.
TEST(ModelConfigTest, OptionsThatTheFamilyDoesNotKnowAreNamed) {
  json config = Llama();
  EXPECT_THAT(Read(config).unused, IsEmpty());
  config.update({{"sliding_window", 4096},
                 {"dual_chunk_attention_config", {{"chunk_size", 8192}}},
                 {"no_rope_layers", {1, 1}},
                 {"use_bidirectional_attention", true},
                 {"residual_multiplier", 1.0},
                 {"clip_qkv", nullptr},
                 {"use_qk_norm", false}});
  EXPECT_THAT(Read(config).unused, ElementsAre("dual_chunk_attention_config", "no_rope_layers",
                                               "sliding_window", "use_bidirectional_attention"));
  config["use_sliding_window"] = false;
  config.erase("no_rope_layers");
  EXPECT_THAT(Read(config).unused, ElementsAre("dual_chunk_attention_config", "use_bidirectional_attention"));
}

TEST(ModelConfigTest, LoadNamesTheFolder) {
  const auto missing = ModelConfig::Load("/nowhere/at/all");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_EQ(missing.status().message(),
            "/nowhere/at/all: there is no such file or folder: name a model's folder, or a GGUF file");
}

}  // namespace
}  // namespace baton::model
