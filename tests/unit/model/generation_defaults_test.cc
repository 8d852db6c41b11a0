#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/config/config.h"
#include "tests/unit/model/model_folder.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

constexpr char kFile[] = "generation_config.json";

absl::StatusOr<GenerationDefaults> Load(const ModelFolder& folder) {
  return GenerationDefaults::Load(folder.path());
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
}

TEST(GenerationDefaultsTest, NamesFileAndFieldOfWhatCanNotBe) {
  const ModelFolder folder("llama-mha");
  const auto message = [&](std::string_view text) {
    folder.Write(kFile, text);
    return std::string(Load(folder).status().message());
  };
  EXPECT_EQ(message(R"({"temperature":-1})"),
            folder.path() +
                "/generation_config.json: field \"temperature\" must be a number of at least 0 and at "
                "most 1e+30, not -1");
  EXPECT_THAT(message(R"({"top_p":1.5})"),
              HasSubstr("field \"top_p\" must be a number above 0 and at most 1"));
  EXPECT_THAT(message(R"({"max_new_tokens":0})"),
              HasSubstr("field \"max_new_tokens\" must be an integer from 1"));
  EXPECT_THAT(message("{"), HasSubstr("generation_config.json: not valid JSON"));
}

}  // namespace
}  // namespace baton::model
