#include "common/command_line/spelling.h"

#include <gtest/gtest.h>

namespace baton::command_line {
namespace {

const std::vector<std::string> kCommands = {"serve",  "chat", "generate", "bench",
                                            "health", "key",  "model",    "plan"};

TEST(SpellingTest, FindsWhatIsAnEditAway) {
  EXPECT_EQ(Nearest("srve", kCommands), "serve");
  EXPECT_EQ(Nearest("servee", kCommands), "serve");
  EXPECT_EQ(Nearest("sevre", kCommands), "serve") << "swapped neighbours are one edit";
  EXPECT_EQ(Nearest("genrate", kCommands), "generate");
  EXPECT_EQ(Nearest("--max-token", {"--max-running", "--max-tokens"}), "--max-tokens");
}

TEST(SpellingTest, FindsWhatAWordBegins) {
  EXPECT_EQ(Nearest("gen", kCommands), "generate");
  EXPECT_EQ(Nearest("--token", {"--token-ids", "--token-budget"}), "") << "either may be meant";
}

TEST(SpellingTest, DoesNotGuessWildly) {
  EXPECT_EQ(Nearest("frobnicate", kCommands), "");
  EXPECT_EQ(Nearest("", kCommands), "");
  EXPECT_EQ(Nearest("ab", kCommands), "");
  EXPECT_EQ(Nearest(std::string(100'000, 's'), kCommands), "");
}

}  // namespace
}  // namespace baton::command_line
