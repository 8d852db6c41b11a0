// The models file: what it says, and what it is refused for.
#include "router/models_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelsFileTest, SaysWhichModelsThereAreAndWhereTheirWorkersAre) {
  const auto file = ParseModels(
      R"({"moderation": {"policy": "block", "input": true}, "models": [{"folder": "/a"},
                     {"folder": "/b", "name": "b", "output_format": "hermes", "decode": ["h:1", "h:2"],
                      "prefill": ["p:1"], "fleet_file": "b.json", "classifier": "llama_guard"}]})",
      "models.json");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->moderation,
            (moderation::Rules{.policy = moderation::Policy::kBlock, .input = true, .fail_open = false}));
  const auto* const models = &file->models;
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].folder, "/a");
  EXPECT_FALSE((*models)[0].HasWorkers());
  EXPECT_THAT((*models)[0].name, IsEmpty());
  EXPECT_THAT((*models)[0].classifier, IsEmpty());
  EXPECT_EQ((*models)[1].classifier, "llama_guard");
  EXPECT_EQ((*models)[1].name, "b");
  EXPECT_EQ((*models)[1].output_format, "hermes");
  EXPECT_THAT((*models)[1].decode, ElementsAre("h:1", "h:2"));
  EXPECT_THAT((*models)[1].prefill, ElementsAre("p:1"));
  EXPECT_EQ((*models)[1].fleet_file, "b.json");
  EXPECT_TRUE((*models)[1].HasWorkers());
}

TEST(ModelsFileTest, SaysWhoMayUseAModelAndHowMuch) {
  const auto file = ParseModels(
      R"({"models": [{"folder": "/a", "tenants": ["search", "ads"], "max_tokens": 512, "default_max_tokens": 128,
                      "requests_per_minute": 60, "prompt_tokens_per_minute": 7000,
                      "output_tokens_per_minute": 800},
                     {"folder": "/b", "tenants": null}]})",
      "models.json");
  ASSERT_TRUE(file.ok()) << file.status();
  const RouterOptions::Model& limited = file->models[0];
  EXPECT_THAT(limited.tenants, ElementsAre("search", "ads"));
  EXPECT_EQ(limited.max_tokens, 512);
  EXPECT_EQ(limited.default_max_tokens, 128);
  EXPECT_EQ(limited.requests_per_minute, 60);
  EXPECT_EQ(limited.prompt_tokens_per_minute, 7000);
  EXPECT_EQ(limited.output_tokens_per_minute, 800);
  const RouterOptions::Model& open = file->models[1];
  EXPECT_THAT(open.tenants, IsEmpty());
  EXPECT_EQ(open.max_tokens + open.default_max_tokens + open.requests_per_minute +
                open.prompt_tokens_per_minute + open.output_tokens_per_minute,
            0);
}

TEST(ModelsFileTest, WhatIsWrongIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "models.json: not an object"},
      {R"({"models": []})", "at least one model"},
      {R"({"model": []})", "unknown field \"model\""},
      {R"({"models": [{"name": "a"}]})", "models[0]: field \"folder\""},
      {R"({"models": [{"folder": "/a"}, 7]})", "models[1]: not an object"},
      {R"({"models": [{"folder": "/a", "workers": []}]})", "models[0]: unknown field \"workers\""},
      {R"({"models": [{"folder": "/a", "decode": "h:1"}]})", "field \"decode\" is not a list of addresses"},
      {R"({"models": [{"folder": "/a", "decode": [1]}]})", "field \"decode\" is not a list of addresses"},
      {R"({"models": [{"folder": "/a"}], "moderation": {"policy": "some"}})", "moderation: field \"policy\""},
      {R"({"models": [{"folder": "/a", "prefill": ["p:1"]}]})", "models[0]: it has prefill workers"},
      {R"({"models": [{"folder": "/a", "tenants": "ads"}]})",
       "field \"tenants\" is not a list of tenants' names"},
      {R"({"models": [{"folder": "/a", "tenants": []}]})", "models[0]: field \"tenants\" is empty"},
      {R"({"models": [{"folder": "/a", "tenants": ["a b"]}]})", "models[0]: field \"tenants\": "},
      {R"({"models": [{"folder": "/a", "max_tokens": -1}]})", "models[0]: field \"max_tokens\""},
      {R"({"models": [{"folder": "/a", "max_tokens": 8, "default_max_tokens": 9}]})",
       "field \"default_max_tokens\" is 9, more than \"max_tokens\", 8"},
      {R"({"models": [{"folder": "/a", "classifier": "auto", "default_max_tokens": 9}]})",
       "models[0]: a classifier judges for all tenants"},
      {R"({"models": [{"folder": "/a", "requests_per_minute": 1.5}]})", "field \"requests_per_minute\""},
      {R"({"models": [{"folder": "/a", "classifier": "auto", "max_tokens": 9}]})",
       "models[0]: a classifier judges for all tenants"},
      {R"({"models": [{"folder": "/a", "classifier": "auto", "tenants": ["ads"]}]})",
       "models[0]: a classifier judges for all tenants"},
  };
  for (const auto& [text, words] : cases) {
    SCOPED_TRACE(text);
    const auto models = ParseModels(text, "models.json");
    EXPECT_TRUE(absl::IsInvalidArgument(models.status())) << models.status();
    EXPECT_THAT(std::string(models.status().message()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace baton::router
