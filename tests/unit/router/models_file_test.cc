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
  const auto models = ParseModels(
      R"({"models": [{"folder": "/a"},
                     {"folder": "/b", "name": "b", "output_format": "hermes", "decode": ["h:1", "h:2"],
                      "prefill": ["p:1"], "fleet_file": "b.json"}]})",
      "models.json");
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].folder, "/a");
  EXPECT_FALSE((*models)[0].HasWorkers());
  EXPECT_THAT((*models)[0].name, IsEmpty());
  EXPECT_EQ((*models)[1].name, "b");
  EXPECT_EQ((*models)[1].output_format, "hermes");
  EXPECT_THAT((*models)[1].decode, ElementsAre("h:1", "h:2"));
  EXPECT_THAT((*models)[1].prefill, ElementsAre("p:1"));
  EXPECT_EQ((*models)[1].fleet_file, "b.json");
  EXPECT_TRUE((*models)[1].HasWorkers());
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
      {R"({"models": [{"folder": "/a", "prefill": ["p:1"]}]})", "models[0]: it has prefill workers"},
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
