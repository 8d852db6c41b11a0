#include "router/api/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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
