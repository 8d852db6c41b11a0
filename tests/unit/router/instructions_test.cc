#include "router/api/instructions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "router/api/conversation.h"
#include "router/api/request_preparer.h"
#include "tests/unit/router/shipped_model.h"

namespace baton::router {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Turns = std::vector<std::pair<std::string, std::string>>;

constexpr output::HistoryStyle kFirstAlone = {.system = true},
                               kAnywhere = {.system = true, .late_system = true}, kNowhere = {};

v1::Conversation Of(const Turns& turns) {
  v1::Conversation conversation;
  for (const auto& [role, content] : turns) {
    v1::Message& message = *conversation.add_messages();
    message.set_role(role);
    message.set_content(content);
  }
  return conversation;
}

Turns TurnsOf(const v1::Conversation& conversation) {
  Turns turns;
  for (const v1::Message& message : conversation.messages()) {
    turns.emplace_back(message.role(), ContentOf(message));
  }
  return turns;
}

Turns Placed(const Turns& turns, const output::HistoryStyle& style) {
  const v1::Conversation conversation = Of(turns);
  const auto placed = PlaceInstructions(conversation, style);
  return TurnsOf(placed.has_value() ? *placed : conversation);
}

TEST(InstructionsTest, WhatHasItsPlaceIsLeftAlone) {
  EXPECT_FALSE(PlaceInstructions(Of({{"user", "a"}, {"assistant", "b"}}), kNowhere).has_value());
  EXPECT_FALSE(PlaceInstructions(Of({{"system", "s"}, {"user", "a"}}), kFirstAlone).has_value());
  EXPECT_FALSE(
      PlaceInstructions(Of({{"system", "s"}, {"user", "a"}, {"system", "t"}}), kAnywhere).has_value());
  EXPECT_FALSE(PlaceInstructions(Of({{"system", "s"}}), kFirstAlone).has_value());
}

TEST(InstructionsTest, ThoseBeforeTheFirstQuestionAreOne) {
  for (const auto& style : {kFirstAlone, kAnywhere}) {
    EXPECT_EQ(Placed({{"system", "a"}, {"developer", "b"}, {"system", "c"}, {"user", "q"}}, style),
              (Turns{{"system", "a\n\nb\n\nc"}, {"user", "q"}}));
    EXPECT_EQ(Placed({{"developer", "b"}, {"user", "q"}}, style), (Turns{{"system", "b"}, {"user", "q"}}));
  }
  EXPECT_EQ(Placed({{"system", "a"}, {"system", "b"}, {"user", "q"}}, kNowhere),
            (Turns{{"user", "<system>\na\n\nb\n</system>\n\nq"}}));
  EXPECT_EQ(Placed({{"system", "a"}, {"system", ""}, {"user", "q"}}, kFirstAlone),
            (Turns{{"system", "a"}, {"user", "q"}}));
}

TEST(InstructionsTest, LaterOnesStandWhereTheTemplateTakesThem) {
  EXPECT_EQ(Placed({{"system", "a"}, {"user", "q"}, {"developer", "b"}}, kAnywhere),
            (Turns{{"system", "a"}, {"user", "q"}, {"system", "b"}}));
  EXPECT_EQ(
      Placed({{"user", "q"}, {"system", "b"}, {"assistant", "x"}, {"system", "c"}}, kFirstAlone),
      (Turns{
          {"user", "q\n\n<system>\nb\n</system>"}, {"assistant", "x"}, {"user", "<system>\nc\n</system>"}}));
  EXPECT_EQ(Placed({{"user", "q"}, {"assistant", "x"}, {"system", "b"}, {"system", "c"}, {"user", "r"}},
                   kFirstAlone),
            (Turns{{"user", "q"}, {"assistant", "x"}, {"user", "<system>\nb\n\nc\n</system>\n\nr"}}));
  EXPECT_EQ(Placed({{"user", "q"}, {"assistant", ""}, {"tool", "r"}, {"system", "b"}, {"system", "c"}},
                   kFirstAlone),
            (Turns{{"user", "q"},
                   {"assistant", ""},
                   {"tool", "r\n\n<system>\nb\n</system>\n\n<system>\nc\n</system>"}}));
  EXPECT_EQ(
      Placed({{"user", "q"}, {"assistant", "x"}, {"system", "b"}, {"assistant", "y"}}, kFirstAlone),
      (Turns{{"user", "q"}, {"assistant", "x"}, {"user", "<system>\nb\n</system>"}, {"assistant", "y"}}));
}

TEST(InstructionsTest, EmptyOnesAndThoseBehindAFirstAnswer) {
  EXPECT_EQ(Placed({{"user", "q"}, {"system", ""}}, kFirstAlone), (Turns{{"user", "q"}}));
  EXPECT_EQ(Placed({{"system", ""}, {"user", "q"}, {"system", "a"}}, kNowhere),
            (Turns{{"user", "q\n\n<system>\na\n</system>"}}));
  EXPECT_EQ(Placed({{"assistant", "hi"}, {"system", "b"}, {"user", "q"}}, kFirstAlone),
            (Turns{{"assistant", "hi"}, {"user", "<system>\nb\n</system>\n\nq"}}))
      << "it may have been asked without the question";
}

// Copies of the turn for each of them would take hours.
TEST(InstructionsTest, ManyTakeLinearTime) {
  Turns turns = {{"user", std::string(1 << 20, 'q')}};
  for (int i = 0; i < 100'000; ++i) turns.emplace_back("system", "a");
  const auto placed = PlaceInstructions(Of(turns), kFirstAlone);
  ASSERT_TRUE(placed.has_value());
  EXPECT_EQ(placed->messages_size(), 1);
  EXPECT_EQ(ContentOf(placed->messages(0)).size(),
            (1u << 20) + 100'000 * std::string("\n\n<system>\na\n</system>").size());
}

TEST(InstructionsTest, MarksAndPartsStayWithTheirTexts) {
  v1::Conversation conversation = Of({{"system", "a"}, {"system", ""}, {"user", "q"}, {"system", "late"}});
  conversation.mutable_messages(0)->mutable_cache()->set_ttl(v1::CACHE_TTL_1H);
  v1::ContentPart& part = *conversation.mutable_messages(1)->add_parts();
  part.set_text("b");
  part.set_reusable(true);
  conversation.mutable_messages(2)->mutable_cache()->set_ttl(v1::CACHE_TTL_5M);
  conversation.add_tools()->set_name("t");
  conversation.mutable_tools_cache();
  const auto placed = PlaceInstructions(conversation, kFirstAlone);
  ASSERT_TRUE(placed.has_value());
  EXPECT_EQ(placed->tools_size(), 1);
  EXPECT_TRUE(placed->has_tools_cache());
  ASSERT_EQ(TurnsOf(*placed), (Turns{{"system", "a\n\nb"}, {"user", "q\n\n<system>\nlate\n</system>"}}));
  const auto& system = placed->messages(0).parts();
  EXPECT_EQ(system[0].cache().ttl(), v1::CACHE_TTL_1H);
  EXPECT_TRUE(system[2].reusable());
  EXPECT_FALSE(placed->messages(1).has_cache());
  EXPECT_EQ(placed->messages(1).parts(0).cache().ttl(), v1::CACHE_TTL_5M);
}

// With the shipped model's template and tokenizer.
class PromptsTest : public testing::Test {
 protected:
  absl::StatusOr<RequestPreparer::Prompt> PromptOf(const v1::Conversation& conversation) {
    v1::ChatRequest request;
    *request.mutable_conversation() = conversation;
    return preparer_.PromptOf(request, tenant_);
  }
  std::string TextOf(const v1::Conversation& conversation) {
    const auto prompt = PromptOf(conversation);
    BATON_CHECK(prompt.ok()) << prompt.status();
    return prompt->text;
  }

  const ModelRegistry registry_ = ShippedModel();
  const RequestPreparer preparer_{registry_, [] { return uint64_t{1}; }};
  const Tenant tenant_{.salt = kv::TenantSalt("tenant")};
};

// Random conversations of agents: each answer's prompt begins with the one before it and what was answered.
TEST_F(PromptsTest, AConversationThatGoesOnChangesNothing) {
  std::mt19937 random(7);
  const auto one_of = [&random](int count) {
    return static_cast<int>(random() % static_cast<uint32_t>(count));
  };
  for (int trial = 0; trial < 200; ++trial) {
    Turns turns;
    for (int i = one_of(3); i > 0; --i) turns.emplace_back(one_of(2) == 0 ? "system" : "developer", "rule");
    turns.emplace_back("user", "question");
    std::string before;
    for (int answers = 0; answers < 5; ++answers) {
      for (int i = one_of(3); i > 0; --i) turns.emplace_back("system", fmt::format("note {}", one_of(100)));
      const std::string prompt = TextOf(Of(turns));
      ASSERT_THAT(prompt, StartsWith(before)) << testing::PrintToString(turns);
      const std::string answer = fmt::format("answer {}", answers);
      before = prompt + answer + "<|end|>";
      turns.emplace_back("assistant", answer);
      for (int i = one_of(2); i > 0; --i) turns.emplace_back("system", "note");
      turns.emplace_back(one_of(2) == 0 ? "user" : "tool", "go on");
    }
  }
}

TEST_F(PromptsTest, ACallThatWasCutStaysAsItWasWritten) {
  v1::Conversation conversation = Of({{"user", "q"}, {"assistant", ""}, {"tool", "no such place"}});
  v1::ToolCall& call = *conversation.mutable_messages(1)->add_tool_calls();
  call.set_name("f");
  for (const char* const arguments : {R"({"a": )", "[1]", R"({"a": 1, "a": 2})", "3"}) {
    call.set_arguments_json(arguments);
    EXPECT_THAT(TextOf(conversation), HasSubstr(fmt::format("\"arguments\": {}}}\n</tool_call>", arguments)));
  }
}

TEST_F(PromptsTest, AnAnswerGoesOnWithTheLastMessage) {
  for (const std::string content :
       {"Hello, Ada! I", "ends in blanks  \n", "", "[.]", "[..] [...] ....", "<|end|>"}) {
    v1::Conversation conversation = Of({{"system", "Be brief."}, {"user", "Hello!"}, {"assistant", content}});
    conversation.set_continue_last(true);
    v1::Conversation asked = conversation;
    asked.clear_continue_last();
    asked.mutable_messages()->RemoveLast();
    EXPECT_EQ(TextOf(conversation), TextOf(asked) + content);
  }
  for (const Turns& turns : {Turns{{"user", "q"}}, Turns{{"user", "q"}, {"assistant", "a"}, {"tool", "t"}},
                             Turns{{"user", "q"}, {"assistant", "a"}, {"system", "s"}}}) {
    v1::Conversation conversation = Of(turns);
    conversation.set_continue_last(true);
    EXPECT_THAT(std::string(PromptOf(conversation).status().message()),
                StartsWith("conversation.continue_last: "));
  }
  v1::Conversation calling = Of({{"user", "q"}, {"assistant", "a"}});
  calling.mutable_messages(1)->add_tool_calls()->set_name("f");
  calling.set_continue_last(true);
  EXPECT_THAT(std::string(PromptOf(calling).status().message()), StartsWith("conversation.continue_last: "));
}

TEST_F(PromptsTest, WhatAWholeAnswerIsAskedForDoesNotGoWithABegunOne) {
  v1::ChatRequest request;
  *request.mutable_conversation() = Of({{"user", "q"}, {"assistant", "a"}});
  request.mutable_conversation()->set_continue_last(true);
  ASSERT_TRUE(preparer_.Prepare(request, tenant_).ok());
  const auto refusal = [&](auto edit) {
    v1::ChatRequest edited = request;
    edit(edited);
    EXPECT_TRUE(preparer_.PromptOf(edited, tenant_).ok()) << "it can be counted";
    return std::string(preparer_.Prepare(edited, tenant_).status().message());
  };
  const auto tool = [](v1::ChatRequest& r) -> v1::Tool& {
    v1::Tool& made = *r.mutable_conversation()->add_tools();
    made.set_name("f");
    return made;
  };
  EXPECT_THAT(refusal([](auto& r) { r.mutable_constraint()->set_regex("x"); }),
              StartsWith("conversation.continue_last: a constraint"));
  EXPECT_THAT(refusal([&](auto& r) {
                tool(r);
                r.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
              }),
              StartsWith("conversation.continue_last: a constraint"));
  EXPECT_THAT(refusal([&](auto& r) { tool(r).set_strict(true); }),
              StartsWith("conversation.continue_last: a constraint"));
  EXPECT_EQ(refusal([&](auto& r) { tool(r); }), "");
  const auto begun = [](const char* text) {
    return [text](auto& r) { r.mutable_conversation()->mutable_messages(1)->set_content(text); };
  };
  EXPECT_THAT(refusal(begun("<think>\nFirst, ")), HasSubstr("thinking that it begins with has no end"));
  EXPECT_EQ(refusal(begun("The tag is <think>, and")), "");
  EXPECT_EQ(refusal(begun("<think>\nFirst.\n</think>\n\nThen")), "");
}

// The client's own messages are shortened, and what is left of them is placed.
TEST_F(PromptsTest, WhatIsShortenedKeepsItsInstructions) {
  std::string rambling;
  for (int i = 0; i < 60; ++i) rambling += fmt::format("The story number {} is long. ", i);
  Turns turns = {{"user", rambling}, {"assistant", rambling}, {"system", "stay calm"}};
  for (int i = 0; i < 8; ++i) {
    turns.emplace_back("tool", rambling);
    turns.emplace_back("system", "rule " + std::to_string(i));
    turns.emplace_back("assistant", rambling);
  }
  turns.emplace_back("user", "the last question");
  turns.emplace_back("system", "the last rule");
  v1::ChatRequest request;
  *request.mutable_conversation() = Of(turns);
  request.mutable_stop()->set_max_tokens(16);
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_CLEAR_TOOL_RESULTS);
  request.mutable_overflow()->set_keep_tool_results(0);
  // Answers alone are too long: it can be counted, and not be answered.
  ASSERT_FALSE(preparer_.Prepare(request, tenant_).ok());
  const auto cleared = preparer_.PromptOf(request, tenant_);
  ASSERT_TRUE(cleared.ok()) << cleared.status();
  EXPECT_GT(cleared->tokens.size(), 2304u - 16);
  request.mutable_overflow()->clear_keep_tool_results();
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_DROP_OLDEST);
  const auto dropped = preparer_.PromptOf(request, tenant_);
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_THAT(dropped->text, HasSubstr("the last question\n\n<system>\nthe last rule\n</system><|end|>"));
  EXPECT_LE(dropped->tokens.size(), 2304u - 16);

  // An instruction between an answer and a question goes with the question.
  *request.mutable_conversation() = Of({{"system", "s"},
                                        {"user", rambling + rambling + rambling},
                                        {"assistant", rambling + rambling},
                                        {"system", "the rule"},
                                        {"user", "and now?"}});
  const auto last = preparer_.PromptOf(request, tenant_);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT(last->text, HasSubstr("<|system|>s\n\nthe rule<|end|><|user|>and now?"));
  EXPECT_THAT(last->text, testing::Not(HasSubstr("story")));

  Turns results = {{"user", "q"}};
  for (int i = 0; i < 6; ++i) {
    results.emplace_back("assistant", "a");
    results.emplace_back("tool", rambling);
    results.emplace_back("system", "rule " + std::to_string(i));
  }
  *request.mutable_conversation() = Of(results);
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_CLEAR_TOOL_RESULTS);
  const auto kept = preparer_.PromptOf(request, tenant_);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(kept->context.has_value());
  EXPECT_GT(kept->context->cleared_tool_results(), 0u);
  for (int i = 0; i < 6; ++i) EXPECT_THAT(kept->text, HasSubstr("rule " + std::to_string(i)));
}

// Marks are found by rendering other conversations, which end with a question.
TEST_F(PromptsTest, MarksAreFoundInWhatIsContinued) {
  v1::ChatRequest request;
  std::string rules;
  for (int i = 0; i < 60; ++i) rules += fmt::format("The rule number {} holds. ", i);
  *request.mutable_conversation() = Of({{"system", rules}, {"user", "Hello!"}, {"assistant", "Hello, "}});
  request.mutable_conversation()->set_continue_last(true);
  request.mutable_conversation()->mutable_messages(0)->mutable_cache();
  const auto prepared = preparer_.Prepare(request, tenant_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_EQ(prepared->request.leases_size(), 1);
  EXPECT_GT(prepared->request.leases(0).tokens(), 300u);
}

}  // namespace
}  // namespace baton::router
