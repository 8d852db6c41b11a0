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
  const auto with = [&](const char* text) { return Show(history.With({UserMessage(text)})); };
  EXPECT_THAT(with("a"), ::testing::ElementsAre("user:a"));
  EXPECT_THAT(with("b"), ::testing::ElementsAre("user:b")) << "asking alone leaves no trace";
  history.SetSystem("S");
  history.Add({UserMessage("a")}, AssistantMessage("1"));
  EXPECT_EQ(history.turns(), 1u);
  EXPECT_THAT(with("b"), ::testing::ElementsAre("system:S", "user:a", "assistant:1", "user:b"));
  history.Reset();
  EXPECT_EQ(history.turns(), 0u);
  EXPECT_THAT(with("c"), ::testing::ElementsAre("system:S", "user:c"));
  history.SetSystem("");
  EXPECT_THAT(with("c"), ::testing::ElementsAre("user:c"));
}

TEST(HistoryTest, CallsAndTheirResultsAreTurnsToo) {
  History history;
  v1::ToolCall call;
  call.set_id("c1");
  call.set_name("f");
  history.Add({UserMessage("a")}, AssistantMessage("", {call}));
  const v1::Conversation asked = history.With({ResultMessage("c1", "sunny")});
  EXPECT_THAT(Show(asked), ::testing::ElementsAre("user:a", "assistant:", "tool:sunny"));
  EXPECT_EQ(asked.messages(1).tool_calls(0).name(), "f");
  EXPECT_EQ(asked.messages(2).tool_call_id(), "c1");
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
  check("/result  sunny, 20 degrees ", Kind::kResult, "sunny, 20 degrees");
  check("/help", Kind::kHelp, "");
  check("/quit", Kind::kQuit, "");
  check("/exit", Kind::kQuit, "");
  check("/dance now", Kind::kUnknown, "/dance");
  check("/systemic", Kind::kUnknown, "/systemic");
  check("//usr/bin", Kind::kTurn, "/usr/bin");
}

}  // namespace
}  // namespace baton::cli
