#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "common/command_line/option_types.h"

namespace baton::command_line {
namespace {

using Numbers = std::vector<int>;

TEST(NumbersTest, ReadsNumbersAndRangesInTheirOrder) {
  EXPECT_EQ(ParseNumbers("0"), Numbers({0}));
  EXPECT_EQ(ParseNumbers("3,0-2,7"), Numbers({3, 0, 1, 2, 7}));
  EXPECT_EQ(ParseNumbers("5-5"), Numbers({5}));
  EXPECT_EQ(ParseNumbers("128,1024,131072"), Numbers({128, 1024, 131072})) << "lengths of prompts";
  EXPECT_EQ(ParseNumbers("0-1023")->size(), 1024u);
  EXPECT_EQ(NumbersText({3, 0, 12}), "3,0,12");
}

TEST(NumbersTest, RefusesWhatIsNoList) {
  for (const char* text : {"", ",", "1,", "-1", "1-", "2-1", "a", "1.5", "+1", " 1", "0x1", "1048576",
                           "0-99999", "0-1023,5", "99999999999999999999", "1--2"}) {
    EXPECT_FALSE(ParseNumbers(text).has_value()) << text;
  }
}

TEST(NumbersTest, AnOptionSaysWhatAListIs) {
  CLI::App app;
  Numbers numbers;
  AddNumbers(app, "--devices", numbers, "GPUs");
  app.parse("--devices 1-2", false);
  EXPECT_EQ(numbers, Numbers({1, 2}));
  try {
    app.parse("--devices one", false);
    FAIL() << "it was taken";
  } catch (const CLI::ParseError& error) {
    EXPECT_NE(std::string(error.what()).find("\"one\" is no list of numbers"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace baton::command_line
