// `baton model inspect` says whether a folder loads, before anybody serves it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace baton::cli
