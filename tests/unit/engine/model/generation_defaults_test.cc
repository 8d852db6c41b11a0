#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/model/model_folder.h"
#include "text/config/config.h"

namespace baton::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kFile[] = "generation_config.json";

absl::StatusOr<GenerationDefaults> Load(const ModelFolder& folder) {
  return GenerationDefaults::Load(folder.path(), /*vocabulary=*/150);
}

TEST(GenerationDefaultsTest, AreNoneWithoutAFile) {
  const ModelFolder folder("llama-mha");
  const auto defaults = Load(folder);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_FALSE(defaults->temperature.has_value() || defaults->top_k.has_value());
  EXPECT_TRUE(defaults->do_sample);
}

TEST(GenerationDefaultsTest, ReadsWhatAFileStates) {
  const ModelFolder folder("llama-mha");
  folder.Write(kFile, R"({"temperature":0.7,"top_p":0.8,"top_k":20,"min_p":0.05,"repetition_penalty":1.05,
                          "max_new_tokens":64,"do_sample":false,"pad_token_id":null})");
  const auto defaults = Load(folder);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->temperature, 0.7f);
  EXPECT_EQ(defaults->top_p, 0.8f);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->min_p, 0.05f);
  EXPECT_EQ(defaults->repetition_penalty, 1.05f);
  EXPECT_EQ(defaults->max_new_tokens, 64);
  EXPECT_FALSE(defaults->do_sample);
  EXPECT_THAT(defaults->left_out, ElementsAre());
}

// Published folders have such values; the engines that they were written for take them as "off".
TEST(GenerationDefaultsTest, AValueThatCanNotBeUsedIsNoDefault) {
  const ModelFolder folder("llama-mha");
  const std::pair<const char*, const char*> cases[] = {
      {"\"temperature\": -1",
       "field \"temperature\" must be a number of at least 0 and at most 1e+30, not -1"},
      {"\"top_p\": 0", "field \"top_p\" must be a number above 0 and at most 1, not 0"},
      {"\"top_p\": 1.5", "field \"top_p\" must be a number above 0 and at most 1, not 1.5"},
      {"\"top_k\": -1", "field \"top_k\" must be an integer from 0 to 2147483647, not -1"},
      {"\"top_k\": 50.0", "field \"top_k\" must be an integer from 0 to 2147483647, not 50.0"},
      {"\"min_p\": 2", "field \"min_p\" must be a number of at least 0 and at most 1, not 2"},
      {"\"repetition_penalty\": 0", "field \"repetition_penalty\" must be a number above 0"},
      {"\"max_new_tokens\": 0", "field \"max_new_tokens\" must be an integer from 1"},
      {"\"do_sample\": \"no\"", "field \"do_sample\" must be true or false"},
      {"\"eos_token_id\": -1", "field \"eos_token_id\" must be an integer from 0 to 149, not -1"},
      {"\"eos_token_id\": [2, 150]", "field \"eos_token_id\" must hold integers from 0 to 149, not 150"}};
  for (const auto& [field, why] : cases) {
    SCOPED_TRACE(field);
    folder.Write(kFile, std::string("{\"pad_token_id\": 0, ") + field + "}");
    const auto defaults = Load(folder);
    ASSERT_TRUE(defaults.ok()) << defaults.status();
    EXPECT_THAT(defaults->left_out,
                ElementsAre(HasSubstr(folder.path() + "/generation_config.json: " + why)));
    EXPECT_FALSE(defaults->temperature || defaults->top_p || defaults->min_p ||
                 defaults->repetition_penalty || defaults->top_k || defaults->max_new_tokens);
    EXPECT_TRUE(defaults->do_sample);
  }
  folder.Write(kFile, R"({"top_p": 0, "temperature": 0.5, "top_k": -1, "max_new_tokens": 7})");
  const auto defaults = Load(folder);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_THAT(defaults->left_out, ElementsAre(HasSubstr("top_p"), HasSubstr("top_k")));
  EXPECT_EQ(defaults->temperature, 0.5f);
  EXPECT_EQ(defaults->max_new_tokens, 7);
}

TEST(GenerationDefaultsTest, AFileThatIsNoObjectIsRefused) {
  const ModelFolder folder("llama-mha");
  folder.Write(kFile, "{");
  EXPECT_THAT(std::string(Load(folder).status().message()),
              HasSubstr("generation_config.json: not valid JSON"));
  folder.Write(kFile, "[]");
  EXPECT_THAT(std::string(Load(folder).status().message()),
              HasSubstr("generation_config.json: not a JSON object"));
}

}  // namespace
}  // namespace baton::model
