// The options in --help, as CLI11 describes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/command_line/help_format.h"
#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"

namespace baton::command_line {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Shade : uint8_t { kDark, kLight };

class HelpTest : public ::testing::Test {
 protected:
  HelpTest() { app_.formatter(std::make_shared<HelpFormat>()); }
  CLI::App app_{"", "tool"};
};

TEST_F(HelpTest, SaysRangesDefaultsAndCompanionsInWords) {
  int threads = 4;
  double rate = 0;
  std::string file;
  app_.add_option("--threads", threads, "How many threads")->check(CLI::Range(1, 64))->capture_default_str();
  CLI::Option* option = app_.add_option("--rate", rate, "How fast")->check(CLI::PositiveNumber);
  app_.add_option("--file", file, "Where")->type_name("FILE")->required()->excludes(option);
  const std::string help = app_.help();
  EXPECT_THAT(help, HasSubstr("--threads N"));
  EXPECT_THAT(help, HasSubstr("How many threads (1 to 64; default 4)"));
  EXPECT_THAT(help, HasSubstr("--rate X"));
  EXPECT_THAT(help, HasSubstr("How fast (above 0"));
  EXPECT_THAT(help, HasSubstr("--file FILE"));
  EXPECT_THAT(help, HasSubstr("Where (required; not with --rate)"));
  for (const char* word : {"INT", "FLOAT", "TEXT", "POSITIVE", "REQUIRED", "Excludes"}) {
    EXPECT_THAT(help, Not(HasSubstr(word)));
  }
}

TEST_F(HelpTest, ShowsWhatMayBeChosen) {
  std::string backend = "cpu";
  app_.add_option("--backend", backend, "Kernels")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  Shade shade = Shade::kLight;
  AddChoice(app_, "--shade", shade, {{"dark", Shade::kDark}, {"light", Shade::kLight}}, "How bright");
  const std::string help = app_.help();
  EXPECT_THAT(help, HasSubstr("--backend cpu|cuda"));
  EXPECT_THAT(help, HasSubstr("--shade dark|light"));
  EXPECT_THAT(help, HasSubstr("How bright (default light)"));
  for (const char c : help) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  app_.parse("--shade dark");
  EXPECT_EQ(shade, Shade::kDark);
}

TEST_F(HelpTest, SizesAreSizes) {
  int64_t bytes = int64_t{1} << 30;
  app_.add_option("--memory", bytes, "Room")
      ->transform(CLI::AsSizeValue(false))
      ->default_str(SizeText(bytes));
  EXPECT_THAT(app_.help(), HasSubstr("--memory SIZE"));
  EXPECT_THAT(app_.help(), HasSubstr("Room (default 1GiB)"));
  EXPECT_EQ(SizeText(0), "0");
  EXPECT_EQ(SizeText(1000), "1000");
  EXPECT_EQ(SizeText(3 << 19), "1536KiB");
}

TEST_F(HelpTest, WhatMattersComesFirstAndTheRestIfItIsAskedFor) {
  int value = 0;
  for (const char* name : {"--a", "--b", "--c"}) app_.add_option(name, value, "x");
  app_.add_option("--d", value, "x")->group("Service");
  app_.add_option("--hidden", value, "x")->group("");
  app_.set_help_all_flag("--help-all", "All");
  ShowFirst(app_, {"--c", "--d"});
  const std::string brief = app_.help(), all = app_.help("", CLI::AppFormatMode::All);
  for (const char* name : {"--c ", "--d ", "--help-all"}) EXPECT_THAT(brief, HasSubstr(name));
  for (const char* name : {"--a ", "--b ", "--hidden"}) EXPECT_THAT(brief, Not(HasSubstr(name)));
  for (const char* name : {"--a ", "--b ", "--c ", "--d ", "--help-all"}) EXPECT_THAT(all, HasSubstr(name));
  EXPECT_THAT(all, Not(HasSubstr("--hidden")));
  for (const std::string& help : {brief, all}) EXPECT_THAT(help, Not(HasSubstr("\n\n\n")));
}

}  // namespace
}  // namespace baton::command_line
