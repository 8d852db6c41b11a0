#include "cli/serve/flag_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using ::testing::ElementsAre;

TEST(FlagListTest, TheLastOfANameCountsInItsPlace) {
  FlagList flags;
  flags.Set("--a", "1");
  flags.Set("--switch");
  flags.Add({"--b=x=y", "--a=2"});
  EXPECT_THAT(flags.Arguments(), ElementsAre("--a=2", "--switch", "--b=x=y"));
  EXPECT_EQ(flags.Value("--a"), "2");
  EXPECT_EQ(flags.Value("--switch"), "");
  EXPECT_EQ(flags.Value("--s"), std::nullopt);
}

TEST(FlagListTest, ValuesMayStandApart) {
  FlagList flags;
  flags.Add({"--a", "64", "--b", "64", "--c"});
  EXPECT_THAT(flags.Arguments(), ElementsAre("--a", "64", "--b", "64", "--c"));
}

TEST(FlagListTest, AnEmptyValueIsAnArgument) {
  FlagList flags;
  flags.Add({"--a=", "--b=1"});
  EXPECT_THAT(flags.Arguments(), ElementsAre("--a", "", "--b=1"));
}

}  // namespace
}  // namespace baton::cli
