// `baton model inspect` says whether a folder loads, before anybody serves it; `baton model prune` writes one
// that does, and `baton model pack` a file of its experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

TEST(ModelInspectTest, TheShippedModelLoads) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  const Outcome outcome = RunBaton({"model", "inspect", folder, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["loads"], true);
}

// Weights and configuration are in order; the router would refuse the folder all the same.
TEST(ModelInspectTest, AFolderWithoutATokenizerDoesNotLoad) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/qwen3";
  const Outcome outcome = RunBaton({"model", "inspect", folder});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("loads"));
  EXPECT_THAT(outcome.out, HasSubstr("no: "));
  EXPECT_THAT(outcome.out, HasSubstr("tokenizer.json"));
}

TEST(ModelInspectTest, AFolderWithoutAModelDoesNotLoad) {
  const Outcome outcome = RunBaton({"model", "inspect", BATON_SOURCE_DIR});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("does not load: "));
  EXPECT_THAT(outcome.err, HasSubstr("no model folder: it has no config.json"));
}

// Standard error is no terminal here.
TEST(ModelQuantizeTest, WritesAFolderThatAnswers) {
  const std::string target = testing::TempDir() + "/quantized-" + std::to_string(getpid());
  const Outcome written = RunBaton({"model", "quantize", std::string(BATON_SOURCE_DIR) + "/models/baton-tiny",
                                    target, "--weights", "int8"});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.err, "int8 is in " + target + "\n");
  const Outcome answer = RunBaton({"generate", "--model", target, "--prompt", "Hello", "--max-tokens", "4"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_FALSE(answer.out.empty());
  std::filesystem::remove_all(target);
  const Outcome portable =
      RunBaton({"model", "quantize", std::string(BATON_SOURCE_DIR) + "/models/baton-tiny", target,
                "--weights", "int8", "--portable"});
  EXPECT_EQ(portable.code, 0) << portable.err;
  EXPECT_THAT(RunBaton({"model", "inspect", target}).out, HasSubstr("compressed-tensors"));
  std::filesystem::remove_all(target);
}

TEST(ModelQuantizeTest, ATextCalibratesFourBits) {
  const std::string target = testing::TempDir() + "/calibrated-" + std::to_string(getpid());
  const std::string text = target + ".txt";
  const auto quantize = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"model", "quantize",
                                     std::string(BATON_SOURCE_DIR) + "/models/baton-tiny", target};
    args.insert(args.end(), more.begin(), more.end());
    return RunBaton(args);
  };
  std::ofstream(text) << "too short";
  const Outcome small = quantize({"--weights", "int4", "--calibration", text});
  EXPECT_EQ(small.code, 1);
  EXPECT_THAT(small.err, HasSubstr(text + ": has "));
  EXPECT_THAT(small.err, HasSubstr("it takes at least 64"));
  const Outcome other = quantize({"--calibration", text});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("--calibration is for --weights int4"));
  EXPECT_FALSE(std::filesystem::exists(target));

  const std::string page = std::string(BATON_SOURCE_DIR) + "/docs/prompt-caching.md";
  const Outcome written = quantize({"--weights", "int4", "--calibration", page, "--tokens", "512"});
  EXPECT_EQ(written.code, 0) << written.err;
  const Outcome answer = RunBaton({"generate", "--model", target, "--prompt", "Hello", "--max-tokens", "4"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_FALSE(answer.out.empty());
  std::filesystem::remove_all(target);
  std::filesystem::remove(text);
}

TEST(ModelInspectTest, AGgufFileLoads) {
  const std::string file = std::string(BATON_SOURCE_DIR) + "/tests/golden/gguf/data/mixed.gguf";
  const Outcome outcome = RunBaton({"model", "inspect", file, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["loads"], true);
  EXPECT_EQ(json["name"], "mixed.gguf");
  EXPECT_EQ(json["quantization"], "gguf");
  EXPECT_EQ(json["matrices"]["f32"], 9);
  // And answers.
  const Outcome answer = RunBaton({"generate", "--model", file, "--prompt", "AB!", "--max-tokens", "4"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_FALSE(answer.out.empty());
}

// Tensors and configuration are in order; the router would refuse the file all the same.
TEST(ModelInspectTest, AGgufFileWithoutItsTokenizerDoesNotLoad) {
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/tests/golden/gguf/data/mixed.gguf", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const size_t at = bytes.find("llama-bpe");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 9, "llama-xyz");
  const std::string file = testing::TempDir() + "/inspect-" + std::to_string(getpid()) + ".gguf";
  std::ofstream(file, std::ios::binary) << bytes;
  const Outcome outcome = RunBaton({"model", "inspect", file});
  std::filesystem::remove(file);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("no: "));
  EXPECT_THAT(outcome.out, HasSubstr("key \"tokenizer.ggml.pre\" is \"llama-xyz\""));
}

// A mixture of four experts, two of them chosen, with random weights and the shipped tokenizer.
class ModelPruneTest : public testing::Test {
 protected:
  static constexpr char kShipped[] = BATON_SOURCE_DIR "/models/baton-tiny";

  ModelPruneTest() {
    constexpr int kHidden = 32, kWidth = 16, kExperts = 4;
    constexpr uint32_t kSeed = 5;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(source_);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      std::filesystem::copy_file(std::string(kShipped) + "/" + name, source_ + "/" + name);
    }
    const auto shipped = nlohmann::json::parse(std::ifstream(std::string(kShipped) + "/config.json"));
    const int vocabulary = shipped["vocab_size"];
    const nlohmann::json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                                   {"vocab_size", vocabulary},
                                   {"hidden_size", kHidden},
                                   {"intermediate_size", 64},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 2},
                                   {"num_key_value_heads", 1},
                                   {"head_dim", 16},
                                   {"max_position_embeddings", 512},
                                   {"rms_norm_eps", 1e-6},
                                   {"num_experts", kExperts},
                                   {"num_experts_per_tok", 2},
                                   {"moe_intermediate_size", kWidth},
                                   {"norm_topk_prob", true},
                                   {"eos_token_id", shipped["eos_token_id"]}};
    std::ofstream(source_ + "/config.json") << config;
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal;
    nlohmann::json header;
    std::string bytes;
    const auto add = [&](const std::string& name, std::vector<int> shape, float scale) {
      const size_t begin = bytes.size();
      const int64_t count = shape.size() == 1 ? shape[0] : int64_t{shape[0]} * shape[1];
      for (int64_t i = 0; i < count; ++i) {
        const float value = shape.size() == 1 ? 1 : scale * normal(random);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, bytes.size()}}};
    };
    add("model.embed_tokens.weight", {vocabulary, kHidden}, 1);
    add("lm_head.weight", {vocabulary, kHidden}, 0.3f);
    add("model.norm.weight", {kHidden}, 1);
    const std::string layer = "model.layers.0.";
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
      add(layer + name + ".weight", {kHidden}, 1);
    }
    for (const char* name : {"q_norm", "k_norm"}) add(layer + "self_attn." + name + ".weight", {16}, 1);
    add(layer + "self_attn.q_proj.weight", {32, kHidden}, 0.2f);
    add(layer + "self_attn.k_proj.weight", {16, kHidden}, 0.2f);
    add(layer + "self_attn.v_proj.weight", {16, kHidden}, 0.2f);
    add(layer + "self_attn.o_proj.weight", {kHidden, 32}, 0.2f);
    add(layer + "mlp.gate.weight", {kExperts, kHidden}, 1);
    for (int e = 0; e < kExperts; ++e) {
      const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
      add(expert + "gate_proj.weight", {kWidth, kHidden}, 0.3f);
      add(expert + "up_proj.weight", {kWidth, kHidden}, 0.3f);
      add(expert + "down_proj.weight", {kHidden, kWidth}, 0.3f);
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    std::ofstream file(source_ + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file << text << bytes;
  }
  ~ModelPruneTest() override { std::filesystem::remove_all(folder_); }

  static Outcome Prune(const std::string& source, const std::string& target, std::vector<std::string> more) {
    std::vector<std::string> all = {
        "model", "prune", source, target, "--calibration", BATON_SOURCE_DIR "/LICENSE", "--window", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return RunBaton(all);
  }

  const std::string folder_ = testing::TempDir() + "/prune-" + std::to_string(getpid());
  const std::string source_ = folder_ + "/source", target_ = folder_ + "/target";
};

TEST_F(ModelPruneTest, WritesAFolderThatLoadsAndAnswers) {
  const Outcome pruned = Prune(source_, target_, {"--keep", "0.75"});
  ASSERT_EQ(pruned.code, 0) << pruned.err;
  EXPECT_THAT(pruned.out, HasSubstr("3 of 4 experts are left in each layer"));
  const auto report = nlohmann::json::parse(std::ifstream(target_ + "/prune.json"));
  EXPECT_EQ(report["layers"][0]["kept"].size(), 3u);
  EXPECT_EQ(report["layers"][0]["scores"].size(), 4u);
  EXPECT_EQ(report["calibration"]["sha256"].get<std::string>().size(), 64u);
  const Outcome inspected = RunBaton({"model", "inspect", target_, "--json"});
  EXPECT_EQ(inspected.code, 0) << inspected.err << inspected.out;
  EXPECT_EQ(nlohmann::json::parse(inspected.out)["experts"]["experts"], 3);
  const Outcome answer = RunBaton({"generate", "--model", target_, "--prompt", "One", "--max-tokens", "4"});
  EXPECT_EQ(answer.code, 0) << answer.err;

  // Again into the same folder; and with a bound that this loss is above.
  EXPECT_EQ(Prune(source_, target_, {}).code, 1);
  const double growth = report["loss_after"].get<double>() / report["loss_before"].get<double>() - 1;
  const std::string bound = std::to_string(growth / 2);
  ASSERT_GT(growth, 1e-4) << "another seed";
  const Outcome refused = Prune(source_, folder_ + "/other", {"--max-loss", bound});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("more than --max-loss"));
}

TEST_F(ModelPruneTest, SaysWhatCanNotBePruned) {
  const Outcome dense = Prune(kShipped, target_, {});
  EXPECT_EQ(dense.code, 1);
  EXPECT_THAT(dense.err, HasSubstr("has no experts that could be left out"));
  const Outcome few = Prune(source_, target_, {"--keep", "0.25"});
  EXPECT_EQ(few.code, 1);
  EXPECT_THAT(few.err, HasSubstr("of which a token takes 2"));
  EXPECT_EQ(Prune(source_, target_, {"--keep", "2"}).code, 2);
}

TEST(ModelPackTest, WritesOnceAndReplacesFilesOfExpertsOnly) {
  const std::string golden = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/";
  const std::string file = testing::TempDir() + "/pack-" + std::to_string(getpid());
  const auto pack = [&](const std::string& model, const std::string& weights) {
    return RunBaton({"model", "pack", "--model", golden + model, "--weights", weights, "--out", file});
  };
  std::filesystem::remove(file);
  Outcome outcome = pack("qwen3-moe", "int8");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("16 experts are in " + file));
  outcome = pack("qwen3-moe", "int8");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("16 experts were already, whole and of these weights, in " + file));
  outcome = pack("mixtral", "stored");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("experts are in "));
  outcome = pack("llama-mha", "stored");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("is no mixture of experts"));
  std::ofstream(file, std::ios::trunc) << "a letter";
  outcome = pack("qwen3-moe", "int8");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("is no file of packed experts: name another, or remove it first"));
  EXPECT_EQ(std::filesystem::file_size(file), 8u);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace baton::cli
