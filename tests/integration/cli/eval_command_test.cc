// `baton eval`: a report of what precisions cost, and refusals of what it can't measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

const std::string kText = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny/eval/recall.jsonl";

TEST(EvalCommandTest, WritesItsFigures) {
  const std::string file = testing::TempDir() + "/eval-" + std::to_string(getpid()) + ".json";
  const Outcome outcome = RunBaton({"eval", "--model", kModel, "--text", kText, "--tokens", "64", "--threads",
                                    "1", "--repetitions", "1", "--max-kl", "1", "--json", file});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("baton-tiny, compared with itself as stored"));
  EXPECT_THAT(outcome.out, HasSubstr("at most 1:\n  --weights int4 --key-dtype i"));
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json["measured"][0]["kl_mean"], 0);
  EXPECT_EQ(json["recommended"]["weights"], "int4");
  std::filesystem::remove(file);
}

TEST(EvalCommandTest, SaysWhatItLacks) {
  const Outcome bare = RunBaton({"eval"});
  EXPECT_EQ(bare.code, 2);
  EXPECT_THAT(bare.err, HasSubstr("--model and --text"));
  const Outcome misplaced =
      RunBaton({"eval", "--max-kl", "0.001", "chunk-reuse", "--model", kModel, "--questions", kText});
  EXPECT_EQ(misplaced.code, 2);
  EXPECT_THAT(misplaced.err, HasSubstr("--max-kl stands before chunk-reuse"));
}

TEST(EvalCommandTest, AModelWithAnotherTokenizerIsNoReference) {
  const Outcome outcome =
      RunBaton({"eval", "--model", kModel, "--text", kText, "--tokens", "64", "--reference",
                std::string(BATON_SOURCE_DIR) + "/tests/golden/gguf/data/mixed.gguf"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("makes other tokens of"));
}

}  // namespace
}  // namespace baton::cli
