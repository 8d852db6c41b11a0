// `baton model inspect` says whether a folder loads, before anybody serves it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

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
  EXPECT_THAT(outcome.err, HasSubstr("config.json: there is no such file"));
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

}  // namespace
}  // namespace baton::cli
