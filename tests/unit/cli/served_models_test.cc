#include "cli/serve/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ServedModelsTest : public testing::Test {
 protected:
  ServedModelsTest() : folder_(fs::path(testing::TempDir()) / "served_models_test") {
    for (const char* const name : {"a", "b", "guard"}) {
      fs::create_directories(folder_ / name);
      std::ofstream(folder_ / name / "config.json") << "{}";
    }
  }

  std::string At(const std::string& name) const { return folder_ / name; }
  std::string File(const Json& json) const {
    std::ofstream(folder_ / "models.json") << json;
    return folder_ / "models.json";
  }
  static std::vector<std::string> Names(const ServedModels& served) {
    std::vector<std::string> names;
    for (const ServedWorker& worker : WorkersOf(served.models)) names.push_back(worker.name);
    return names;
  }

  const fs::path folder_;
};

TEST_F(ServedModelsTest, FoldersHaveTheirOwnNamesUnlessTheyAreGivenSome) {
  const auto two = ReadServedModels({.folders = {At("a"), At("b") + "/"}, .decode = 2});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->models[0].name, "a");
  EXPECT_TRUE(two->models[0].entry.is_null()) << "the router's flags name it";
  EXPECT_EQ(two->models[1].entry, Json({{"folder", At("b") + "/"}, {"name", "b"}}));
  EXPECT_THAT(Names(*two),
              ElementsAre("prefill-0", "prefill-b-0", "decode-0", "decode-1", "decode-b-0", "decode-b-1"));
  const auto named = ReadServedModels({.folders = {At("a"), At("b")}, .names = {"x", "y/z"}});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->models[1].name, "y/z");
  EXPECT_THAT(Names(*named), ElementsAre("prefill-0", "prefill-y-z-0", "decode-0", "decode-y-z-0"));
}

TEST_F(ServedModelsTest, AModelHasMoreNamesThanOne) {
  const auto named = ReadServedModels({.folders = {At("a")}, .names = {"x", "y"}, .output_format = "hermes"});
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_EQ(named->models.size(), 2u);
  EXPECT_EQ(named->models[1].same_as, 0u);
  EXPECT_EQ(named->models[1].entry["output_format"], "hermes");
  EXPECT_THAT(Names(*named), ElementsAre("prefill-0", "decode-0"));
}

TEST_F(ServedModelsTest, TheFileSaysWhichWorkersAModelHas) {
  const auto served = ReadServedModels(
      {.folders = {At("a")},
       .file = File({{"models",
                      {{{"folder", At("a")}, {"name", "again"}, {"tenants", {"t"}}},
                       {{"folder", At("a")},
                        {"name", "exact"},
                        {"workers", {{"decode", 1}, {"flags", {"--weights=f32", "--tp=2"}}}}},
                       {{"folder", At("b")}},
                       {{"folder", At("guard")}, {"classifier", "auto"}}}},
                     {"moderation", {{"policy", "block"}}}}),
       .prefill = 0});
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_THAT(Names(*served), ElementsAre("decode-0", "decode-exact-0", "decode-b-0", "decode-guard-0"));
  EXPECT_EQ(served->models[1].same_as, 0u);
  EXPECT_EQ(served->models[1].entry["tenants"], Json({"t"}));
  EXPECT_FALSE(served->models[2].same_as.has_value()) << "it has workers with flags of their own";
  EXPECT_FALSE(served->models[2].entry.contains("workers"));
  EXPECT_TRUE(served->models[2].counted);
  EXPECT_THAT(served->models[2].flags, ElementsAre("--weights=f32", "--tp=2"));
  EXPECT_FALSE(served->models[4].common_flags);
  EXPECT_THAT(served->models[4].flags, testing::Contains("--threads=1"));
  EXPECT_EQ(served->moderation, Json({{"policy", "block"}}));
}

TEST_F(ServedModelsTest, AFileAloneNamesTheDefaultModel) {
  const auto served =
      ReadServedModels({.file = File({{"models", {{{"folder", At("b")}}, {{"folder", At("a")}}}}}),
                        .classifier = At("guard")});
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->models[0].name, "b");
  EXPECT_FALSE(served->models[0].entry.is_null());
  EXPECT_THAT(Names(*served), ElementsAre("prefill-0", "prefill-a-0", "decode-0", "decode-a-0", "moderator"));
}

// Null is as good as absent, for the router and here.
TEST_F(ServedModelsTest, NullAndEmptyFieldsAreAbsent) {
  const auto served =
      ReadServedModels({.file = File({{"models",
                                       {{{"folder", At("a")}, {"name", nullptr}, {"classifier", nullptr}},
                                        {{"folder", At("b")}, {"name", ""}, {"classifier", ""}}}}})});
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->models[0].name, "a");
  EXPECT_EQ(served->models[1].name, "b");
  EXPECT_FALSE(served->models[0].classifier || served->models[1].classifier);
  const auto unset = ReadServedModels({.folders = {At("a")}, .names = {""}});
  ASSERT_TRUE(unset.ok()) << unset.status();
  EXPECT_EQ(unset->models[0].name, "a");
}

// The router takes a path at its word; `baton serve --model .` wants a name.
TEST_F(ServedModelsTest, NamesOfLinks) {
  fs::remove(folder_ / "link");
  fs::create_symlink("guard", folder_ / "link");
  const auto served = ReadServedModels(
      {.folders = {At("a/../link/.")},
       .file = File({{"models", {{{"folder", At("link") + "/"}, {"workers", {{"decode", 2}}}}}}})});
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->models[0].name, "guard");
  EXPECT_EQ(served->models[1].name, "link");
}

TEST_F(ServedModelsTest, NamesAreCutWhereTheyNameFiles) {
  const std::string longest(300, 'x');
  const auto served = ReadServedModels({.folders = {At("a"), At("b")}, .names = {longest, longest + "y"}});
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(Names(*served)[3], "decode-" + std::string(100, 'x') + "-0");
}

TEST_F(ServedModelsTest, SaysWhatCanNotBe) {
  const auto why = [](const ModelFlags& flags) {
    const absl::Status misuse = CheckModelFlags(flags);
    return std::string((misuse.ok() ? ReadServedModels(flags).status() : misuse).message());
  };
  EXPECT_THAT(why({}), HasSubstr("give --model or --models"));
  EXPECT_THAT(why({.names = {"x"}, .file = "f"}), HasSubstr("are of --model, which is missing"));
  EXPECT_THAT(why({.folders = {At("a"), At("b")}, .names = {"x"}}),
              HasSubstr("--model-name is given 1 times, and --model 2"));
  EXPECT_THAT(why({.folders = {At("a"), At("b")}, .output_format = "hermes"}),
              HasSubstr("of a single --model"));
  EXPECT_THAT(why({.folders = {At("a"), At("a")}}), HasSubstr("two models are named a"));
  EXPECT_THAT(why({.folders = {At("a")}, .names = {"x", "x"}}), HasSubstr("two models are named x"));
  EXPECT_THAT(why({.folders = {At("a"), At("b"), At("guard")}, .names = {"x", "o/b", "o-b"}}),
              HasSubstr("the processes of o/b and o-b would have the same names"));
  EXPECT_THAT(why({.folders = {At("a")}, .names = {"x", ""}}), HasSubstr("--model-name is empty"));
  EXPECT_THAT(why({.folders = {At("a")}, .names = {"x", "\xff"}}), HasSubstr("is not UTF-8"));
  EXPECT_THAT(why({.folders = {At("a")}, .classifier = "\xff"}), HasSubstr("is not UTF-8"));
  EXPECT_THAT(why({.folders = {At(std::string(300, 'x')) + "/y"}}), HasSubstr("xxx"));
  EXPECT_THAT(why({.folders = {At("nowhere")}}), HasSubstr("nowhere"));
  EXPECT_THAT(why({.folders = {At("a")}, .file = At("none.json")}), HasSubstr("none.json"));
}

}  // namespace
}  // namespace baton::cli
