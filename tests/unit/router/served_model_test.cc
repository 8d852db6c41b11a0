#include "router/api/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "nlohmann/json.hpp"

namespace baton::router {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

const std::string kModel = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";

ordered_json Read(const std::string& path) { return ordered_json::parse(std::ifstream(path)); }

// A model folder without weights, which a router does not read.
class ServedModelTest : public testing::Test {
 protected:
  ServedModelTest() {
    folder_ = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const std::string file : {"config.json", "generation_config.json", "tokenizer.json"}) {
      fs::copy_file(kModel + "/" + file, folder_ + "/" + file);
    }
  }
  ~ServedModelTest() override { fs::remove_all(folder_); }

  std::string folder_;
};

TEST_F(ServedModelTest, TakesItsNameFromTheFolder) {
  const auto served = ServedModel::Load(folder_ + "/", "");
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_EQ(served->name, "TakesItsNameFromTheFolder");
  EXPECT_EQ(served->vocabulary, 2048);
}

// Each of what prompts and answers follow from changes the build, and nothing else does.
TEST_F(ServedModelTest, ABuildIsOfTokenizerTemplateDefaultsFormatAndWorkers) {
  fs::copy_file(kModel + "/chat_template.jinja", folder_ + "/chat_template.jinja");
  const auto build = [&](const std::string& workers = "workers", const std::string& format = "") {
    const auto served = ServedModel::Load(folder_, "", format);
    EXPECT_TRUE(served.ok()) << served.status();
    return served->BuildWith(workers);
  };
  const std::string first = build();
  EXPECT_THAT(first, testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(build(), first);
  std::set<std::string> builds = {first, build("other workers"), build("workers", "glm")};
  EXPECT_EQ(builds.size(), 3u);

  ordered_json defaults = Read(folder_ + "/generation_config.json");
  defaults["top_p"] = 0.123;
  std::ofstream(folder_ + "/generation_config.json") << defaults;
  EXPECT_TRUE(builds.insert(build()).second) << "defaults";
  std::ofstream(folder_ + "/chat_template.jinja", std::ios::app) << " ";
  EXPECT_TRUE(builds.insert(build()).second) << "template";
  ordered_json tokenizer = Read(folder_ + "/tokenizer.json");
  for (auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    if (id == 500 || id == 501) id = 1001 - id.get<int>();
  }
  std::ofstream(folder_ + "/tokenizer.json") << tokenizer;
  EXPECT_TRUE(builds.insert(build()).second) << "tokenizer";
}

// A token without an embedding would be the fault of whoever writes its text into a prompt.
TEST_F(ServedModelTest, RefusesATokenizerWithMoreTokensThanTheModelEmbeds) {
  ordered_json tokenizer = Read(folder_ + "/tokenizer.json");
  ordered_json added = tokenizer["added_tokens"].back();
  added["id"] = 2048;
  added["content"] = "<extra>";
  tokenizer["added_tokens"].push_back(added);
  std::ofstream(folder_ + "/tokenizer.json") << tokenizer;
  const auto served = ServedModel::Load(folder_, "");
  EXPECT_EQ(served.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(served.status().message(),
              AllOf(HasSubstr(folder_), HasSubstr("token ids up to 2048"), HasSubstr("embeds 2048")));

  ordered_json config = Read(folder_ + "/config.json");
  config["vocab_size"] = 2049;
  std::ofstream(folder_ + "/config.json") << config;
  EXPECT_TRUE(ServedModel::Load(folder_, "").ok());
}

}  // namespace
}  // namespace baton::router
