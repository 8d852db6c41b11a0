// `baton key new`, as an operator uses it beside a tenants file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

class KeyTest : public ::testing::Test {
 protected:
  KeyTest() : folder_(fs::path(::testing::TempDir()) / ("key-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~KeyTest() override { fs::remove_all(folder_); }

  std::string file() const { return folder_ / "tenants.json"; }
  void Write(const std::string& text) const { std::ofstream(file()) << text; }
  std::string Text() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  Outcome New(const std::string& tenant, std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"key", "new", "--tenant", tenant, "--tenants", file()};
    all.insert(all.end(), more.begin(), more.end());
    return RunBaton(all);
  }

  const fs::path folder_;
};

TEST_F(KeyTest, MakesTheTenantsFileAndAddsToIt) {
  ASSERT_EQ(New("search").code, 0);
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(New("search").code, 0);
  const Outcome outcome = New("batch", {"--key-file", folder_ / "batch.key"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const OrderedJson tenants = OrderedJson::parse(Text())["tenants"];
  ASSERT_EQ(tenants.size(), 2u);
  EXPECT_EQ(tenants[0]["name"], "search");
  EXPECT_EQ(tenants[0]["keys"].size(), 2u);
  EXPECT_EQ(tenants[1]["name"], "batch");
  // The line is that of the key in the file.
  std::ifstream key_file(folder_ / "batch.key");
  std::string key;
  key_file >> key;
  EXPECT_EQ(key.substr(3, 12), tenants[1]["keys"][0]["id"].get<std::string>());
  EXPECT_THAT(outcome.out, HasSubstr(tenants[1]["keys"][0]["id"].get<std::string>()));
}

TEST_F(KeyTest, KeepsWhatElseTheFileSays) {
  Write(
      R"({"tenants": [{"name": "search", "weight": 2.5, "queue": {"bytes": 7, "requests": 3}, "certificates": ["a"]},
                        {"name": "guest", "anonymous": true}]})");
  fs::permissions(file(), fs::perms::owner_all | fs::perms::group_read);
  OrderedJson expected = OrderedJson::parse(Text());
  ASSERT_EQ(New("search").code, 0);
  OrderedJson found = OrderedJson::parse(Text());
  EXPECT_EQ(found["tenants"][0]["keys"].size(), 1u);
  found["tenants"][0].erase("keys");
  EXPECT_EQ(found, expected);
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_all | fs::perms::group_read);
}

TEST_F(KeyTest, RefusesWhatARouterWouldAndLeavesNothingBehind) {
  const std::string wrong = R"({"tenants": [{"name": "search", "colour": 1}]})";
  Write(wrong);
  const Outcome outcome = New("search", {"--key-file", folder_ / "k"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("unknown field \"colour\""));
  EXPECT_EQ(Text(), wrong);
  Write(R"({"tenants": []})");
  EXPECT_NE(New("no spaces, please", {"--key-file", folder_ / "k"}).code, 0);
  EXPECT_NE(New("\xff", {"--key-file", folder_ / "k"}).code, 0);
  std::ofstream(file() + ".new") << "another's draft";
  const Outcome busy = New("search", {"--key-file", folder_ / "k"});
  EXPECT_EQ(busy.code, 1);
  EXPECT_THAT(busy.err, HasSubstr("another process is changing the file"));
  EXPECT_EQ(Text(), R"({"tenants": []})");
  EXPECT_FALSE(fs::exists(folder_ / "k")) << "a key that no router knows";
}

}  // namespace
}  // namespace baton::cli
