#include "cli/chat/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using Kind = Typed::Kind;

std::vector<std::string> Show(const v1::Conversation& conversation) {
  std::vector<std::string> turns;
  for (const v1::Message& message : conversation.messages())
    turns.push_back(message.role() + ":" + message.content());
  return turns;
}

TEST(HistoryTest, HoldsTheTurnsThatTookPlace) {
  History history;
  EXPECT_THAT(Show(history.With("a")), ::testing::ElementsAre("user:a"));
  EXPECT_THAT(Show(history.With("b")), ::testing::ElementsAre("user:b")) << "asking alone leaves no trace";
  history.SetSystem("S");
  history.Add("a", "1");
  EXPECT_THAT(Show(history.With("b")), ::testing::ElementsAre("system:S", "user:a", "assistant:1", "user:b"));
  history.Reset();
  EXPECT_THAT(Show(history.With("c")), ::testing::ElementsAre("system:S", "user:c"));
  history.SetSystem("");
  EXPECT_THAT(Show(history.With("c")), ::testing::ElementsAre("user:c"));
}

TEST(ParseTypedTest, TellsTurnsFromCommands) {
  const auto check = [](std::string_view line, Kind kind, std::string_view text) {
    const Typed typed = ParseTyped(line);
    EXPECT_EQ(typed.kind, kind) << line;
    EXPECT_EQ(typed.text, text) << line;
  };
  check("hello there", Kind::kTurn, "hello there");
  check("  padded\t", Kind::kTurn, "padded");
  check("", Kind::kNothing, "");
  check(" \t", Kind::kNothing, "");
  check("/reset", Kind::kReset, "");
  check("/system  You are terse. ", Kind::kSystem, "You are terse.");
  check("/system", Kind::kSystem, "");
  check("/stats", Kind::kStats, "");
  check("/help", Kind::kHelp, "");
  check("/quit", Kind::kQuit, "");
  check("/exit", Kind::kQuit, "");
  check("/dance now", Kind::kUnknown, "/dance");
  check("/systemic", Kind::kUnknown, "/systemic");
  check("//usr/bin", Kind::kTurn, "/usr/bin");
}

}  // namespace
}  // namespace baton::cli
