#include "cli/chat/tools_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

TEST(ToolsFileTest, TakesBothForms) {
  const auto tools = ParseTools(R"([
    {"name": "f", "description": "does", "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}},
    {"type": "function", "function": {"name": "g"}}])");
  ASSERT_TRUE(tools.ok()) << tools.status();
  ASSERT_EQ(tools->size(), 2u);
  EXPECT_EQ(tools->at(0).name(), "f");
  EXPECT_EQ(tools->at(0).description(), "does");
  EXPECT_EQ(tools->at(0).parameters_json(), R"({"type":"object","properties":{"z":{},"a":{}}})");
  EXPECT_EQ(tools->at(1).name(), "g");
  EXPECT_EQ(tools->at(1).parameters_json(), "");
}

TEST(ToolsFileTest, SaysWhatIsWrong) {
  const auto message = [](const char* json) { return std::string(ParseTools(json).status().message()); };
  EXPECT_THAT(message("{}"), HasSubstr("not a list"));
  EXPECT_THAT(message("[1]"), HasSubstr("entry 0: not an object"));
  EXPECT_THAT(message(R"([{"name": "f"}, {}])"), HasSubstr("entry 1: no \"name\""));
  EXPECT_THAT(message(R"([{"name": "f", "parameters": []}])"), HasSubstr("\"parameters\" is not a schema"));
  EXPECT_THAT(message(R"([{"name": "f", "description": 1}])"), HasSubstr("\"description\" is not a string"));
  EXPECT_TRUE(absl::IsNotFound(ReadTools("no/such/file").status()));
}

}  // namespace
}  // namespace baton::cli
