#include "decode_service/answer_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode_service/answer_text.h"

namespace baton::decode_service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A client's view of deltas: one line for each part, and the text.
struct Seen {
  std::vector<std::string> parts;
  std::string text;
  std::optional<AnswerText::End> end;

  void Add(const v1::Delta& delta) {
    text += delta.text();
    for (const v1::PartEvent& event : delta.parts()) {
      if (event.has_start()) {
        ASSERT_EQ(event.part(), parts.size());
        const char* const kinds[] = {"?", "text:", "thinking:", "call:"};
        parts.push_back(kinds[event.start().kind()] + event.start().name() +
                        (event.start().id().empty() ? "" : "#" + event.start().id()));
        continue;
      }
      ASSERT_EQ(event.part() + 1, parts.size());
      parts.back() += event.text() + event.arguments_json();
      if (event.has_end()) parts.back() += event.end().complete() ? "." : " cut";
    }
  }
  friend bool operator==(const Seen& a, const Seen& b) {
    return a.parts == b.parts && a.text == b.text && a.end.has_value() == b.end.has_value() &&
           (!a.end.has_value() || (a.end->reason == b.end->reason && a.end->stop_match == b.end->stop_match));
  }
};

class AnswerPartsTest : public testing::Test {
 protected:
  std::vector<TokenId> Encode(const std::string& text) { return tokenizer_->Encode(text, false).value(); }

  // One that offers the tools f and g.
  static fleet::v1::AnswerFormat Hermes() {
    fleet::v1::AnswerFormat format;
    format.set_name("hermes");
    format.add_tools("f");
    format.add_tools("g");
    return format;
  }

  std::unique_ptr<AnswerText> Make(const fleet::v1::AnswerFormat& format,
                                   const std::vector<std::string>& stops = {}, uint32_t max_tokens = 1000) {
    v1::StopConditions stop;
    stop.set_max_tokens(max_tokens);
    for (const std::string& text : stops) stop.add_stop(text);
    return std::make_unique<AnswerText>(tokenizer_, stop, v1::OutputOptions(), 0, eos_,
                                        AnswerParts::ReadOptions(format, markers_, 7).value());
  }

  // Pushes until the answer ends.
  Seen Run(AnswerText& answer, std::span<const TokenId> tokens) {
    Seen seen;
    for (const TokenId token : tokens) {
      v1::Delta delta;
      seen.end = answer.Push({.token = token}, 0, delta);
      seen.Add(delta);
      if (seen.end.has_value()) break;
    }
    return seen;
  }
  Seen Answer(const fleet::v1::AnswerFormat& format, const std::string& text,
              const std::vector<std::string>& stops = {}) {
    auto tokens = Encode(text);
    tokens.push_back(eos_.front());
    return Run(*Make(format, stops), tokens);
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  std::shared_ptr<const output::MarkerTables> markers_ = std::make_shared<output::MarkerTables>(*tokenizer_);
  const std::vector<TokenId> eos_ = {TokenId(2)};
};

const char kCall[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"the end\"}}\n</tool_call>";
const char kOther[] = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

std::string WithoutId(const std::string& part) {
  const size_t at = part.find('#');
  return at == std::string::npos ? part : part.substr(0, at) + part.substr(at + 10);
}

TEST_F(AnswerPartsTest, TextThinkingAndCalls) {
  const Seen seen =
      Answer(Hermes(), std::string("<think>\nhm\n</think>\n\nI look.\n") + kCall + "\n" + kOther);
  ASSERT_THAT(seen.parts, SizeIs(4));
  EXPECT_EQ(seen.parts[0], "thinking:hm.");
  EXPECT_EQ(seen.parts[1], "text:I look..");
  EXPECT_EQ(WithoutId(seen.parts[2]), "call:f{\"a\": \"the end\"}.");
  EXPECT_EQ(WithoutId(seen.parts[3]), "call:g{}.");
  EXPECT_NE(seen.parts[2], seen.parts[3]);
  EXPECT_EQ(seen.text, "I look.");
  ASSERT_TRUE(seen.end.has_value());
  EXPECT_EQ(seen.end->reason, v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(seen.end->stop_token, eos_.front());
}

TEST_F(AnswerPartsTest, WithoutCallsTheReasonIsTheStopToken) {
  const Seen seen = Answer(Hermes(), "I look.");
  EXPECT_THAT(seen.parts, ElementsAre("text:I look.."));
  EXPECT_EQ(seen.end->reason, v1::FINISH_REASON_STOP_TOKEN);
  fleet::v1::AnswerFormat none = Hermes();
  none.clear_tools();
  const Seen text = Answer(none, kCall);
  EXPECT_EQ(text.text, kCall);
  EXPECT_EQ(text.end->reason, v1::FINISH_REASON_STOP_TOKEN);
}

TEST_F(AnswerPartsTest, LengthWinsOverCallsAndACutCallSaysSo) {
  const auto tokens = Encode(std::string(kOther) + "\n" + kCall);
  for (size_t size = 1; size <= tokens.size(); ++size) {
    const auto answer = Make(Hermes(), {}, static_cast<uint32_t>(size));
    const Seen seen = Run(*answer, tokens);
    ASSERT_TRUE(seen.end.has_value());
    EXPECT_EQ(seen.end->reason, v1::FINISH_REASON_LENGTH);
    v1::Finished finished;
    AddPartsReport(*answer->parts(), &finished);
    const bool cut = !seen.parts.empty() && seen.parts.back().ends_with(" cut");
    EXPECT_EQ(finished.warnings_size(), cut ? 1 : 0) << size;
    for (const v1::Warning& warning : finished.warnings()) {
      EXPECT_EQ(warning.kind(), v1::Warning::KIND_INCOMPLETE_CALL);
    }
  }
}

TEST_F(AnswerPartsTest, StopStringsAreLookedForInTextAlone) {
  const Seen inside = Answer(Hermes(), std::string("<think>\nthe end\n</think>\n\n") + kCall, {"the end"});
  ASSERT_THAT(inside.parts, SizeIs(2));
  EXPECT_EQ(inside.end->reason, v1::FINISH_REASON_TOOL_CALLS);
  const Seen text = Answer(Hermes(), std::string("This is the end, so ") + kCall, {"the end"});
  EXPECT_THAT(text.parts, ElementsAre("text:This is ."));
  EXPECT_EQ(text.text, "This is ");
  EXPECT_EQ(text.end->reason, v1::FINISH_REASON_STOP_STRING);
  // Text that may begin a stop string leaves when its part ends, and a match never spans two parts.
  const Seen split =
      Answer(Hermes(), std::string("This is the\n") + kOther + " end", {"the end", "the\nend"});
  EXPECT_EQ(split.end->reason, v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(split.text, "This is theend");
}

TEST_F(AnswerPartsTest, OneCallEndsTheAnswer) {
  fleet::v1::AnswerFormat format = Hermes();
  format.set_one_call(true);
  const Seen seen = Answer(format, std::string(kOther) + "\n" + kCall + "\nAnd more.");
  ASSERT_THAT(seen.parts, SizeIs(1));
  EXPECT_EQ(WithoutId(seen.parts[0]), "call:g{}.");
  EXPECT_EQ(seen.end->reason, v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_FALSE(seen.end->stop_token.has_value());
}

TEST_F(AnswerPartsTest, HiddenThinkingIsCounted) {
  fleet::v1::AnswerFormat format = Hermes();
  format.set_hide_thinking(true);
  const auto tokens = Encode("<think>\nOne, two, three.\n</think>\n\nFour.");
  const auto answer = Make(format, {}, static_cast<uint32_t>(tokens.size()));
  const Seen seen = Run(*answer, tokens);
  EXPECT_THAT(seen.parts, ElementsAre("thinking:.", "text:Four.."));
  v1::Finished finished;
  AddPartsReport(*answer->parts(), &finished);
  const auto thinking = Encode("<think>\nOne, two, three.\n</think>");
  EXPECT_EQ(finished.usage().thinking_tokens(), thinking.size());
}

TEST_F(AnswerPartsTest, ABudgetClosesThinking) {
  fleet::v1::AnswerFormat format = Hermes();
  format.set_thinking_begun(true);
  for (const uint32_t budget : {1u, 4u}) {
    format.set_thinking_budget(budget);
    const auto answer = Make(format);
    const auto wanted = Encode("one two three four five six seven eight nine ten eleven twelve");
    Seen seen;
    std::vector<TokenId> taken;
    bool may = answer->may_force();  // as it was when the step before was planned
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::optional<TokenId> forced = answer->forced();
      EXPECT_TRUE(!forced.has_value() || may) << "a step was planned as if this token were drawn";
      may = answer->may_force();
      const TokenId token = forced.value_or(wanted[i]);
      taken.push_back(token);
      v1::Delta delta;
      ASSERT_FALSE(answer->Push({.token = token}, 0, delta).has_value());
      seen.Add(delta);
    }
    ASSERT_THAT(seen.parts, SizeIs(2));
    const auto cut = Encode("\n</think>\n\n");
    EXPECT_TRUE(std::equal(cut.begin(), cut.end(), taken.begin() + budget));
    EXPECT_TRUE(std::equal(taken.begin(), taken.begin() + budget, wanted.begin()));
    EXPECT_TRUE(seen.parts[0].ends_with(".")) << seen.parts[0];
    EXPECT_THAT(seen.parts[1], HasSubstr("twelve"));
    EXPECT_FALSE(answer->may_force());
  }
}

// Half a character would be lost, and no grammar goes on behind it.
TEST_F(AnswerPartsTest, ABudgetWaitsForTheEndOfACharacter) {
  const auto clefs = Encode("\U0001D11E\U0001D11E\U0001D11E");
  ASSERT_GE(clefs.size(), 9u) << "each is several tokens";
  fleet::v1::AnswerFormat format = Hermes();
  format.set_thinking_begun(true);
  for (uint32_t budget = 1; budget < clefs.size(); ++budget) {
    format.set_thinking_budget(budget);
    const auto answer = Make(format);
    Seen seen;
    bool may = answer->may_force();
    for (size_t i = 0; i < clefs.size() + 8; ++i) {
      const std::optional<TokenId> forced = answer->forced();
      EXPECT_TRUE(!forced.has_value() || may);
      may = answer->may_force();
      v1::Delta delta;
      ASSERT_FALSE(answer->Push({.token = forced.value_or(clefs[i % clefs.size()])}, 0, delta).has_value());
      seen.Add(delta);
    }
    ASSERT_FALSE(seen.parts.empty());
    EXPECT_EQ(seen.parts[0].find("\xEF\xBF\xBD"), std::string::npos) << budget << ": " << seen.parts[0];
    EXPECT_TRUE(seen.parts[0].starts_with("thinking:\U0001D11E")) << seen.parts[0];
  }
}

TEST_F(AnswerPartsTest, AnUnknownFormatIsRefused) {
  fleet::v1::AnswerFormat format;
  format.set_name("other");
  EXPECT_TRUE(absl::IsFailedPrecondition(AnswerParts::ReadOptions(format, markers_, 0).status()));
  format.set_name("hermes");
  EXPECT_TRUE(absl::IsFailedPrecondition(AnswerParts::ReadOptions(format, nullptr, 0).status()));
}

// An answer that moves after any token goes on with the same parts, the same text and the same end.
TEST_F(AnswerPartsTest, AMigrationAfterAnyTokenChangesNothing) {
  fleet::v1::AnswerFormat coder = Hermes();
  coder.set_name("qwen3_coder");
  (*(*coder.mutable_parameters())["f"].mutable_types())["a"] = "string";
  fleet::v1::AnswerFormat budget = Hermes();
  budget.set_thinking_budget(3);
  fleet::v1::AnswerFormat one = Hermes();
  one.set_one_call(true);
  const std::string thinking = "<think>\nhm, let me see\n</think>\n\n";
  const struct {
    fleet::v1::AnswerFormat format;
    std::string text;
  } cases[] = {
      {Hermes(), thinking + "I look at the e nd.\n" + kCall + "\n" + kOther + "\nDone, the end."},
      {Hermes(), "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call> cut\n" +
                     std::string(kOther) + "So."},
      {coder,
       "I \xF0\x9F\x98\x80 look.\n<function=f>\n<parameter=a>\nsome \xF0\x9F\x98\x80 text\n</parameter>\n"
       "<parameter=b>\n3\n</parameter>\n</function>\n</tool_call>"},
      {budget, thinking + "Yes."},
      {one, thinking + kCall + kOther},
  };
  for (const auto& one_case : cases) {
    SCOPED_TRACE(one_case.text);
    auto tokens = Encode(one_case.text);
    tokens.push_back(eos_.front());
    // Tokens as they would be drawn: a budget puts in its own.
    const auto first = Make(one_case.format, {"the end"});
    std::vector<v1::Delta> deltas;
    Seen whole;
    for (TokenId& token : tokens) {
      token = first->forced().value_or(token);
      whole.end = first->Push({.token = token}, 0, deltas.emplace_back());
      whole.Add(deltas.back());
      if (whole.end.has_value()) break;
    }
    tokens.resize(deltas.size());
    for (size_t moved = 0; moved <= tokens.size(); ++moved) {
      Seen seen;
      for (size_t i = 0; i < moved; ++i) seen.Add(deltas[i]);
      const auto answer = Make(one_case.format, {"the end"});
      const auto resumed = answer->Resume(std::span(tokens).first(moved));
      ASSERT_TRUE(resumed.ok()) << resumed.status();
      seen.end = *resumed;
      if (!seen.end.has_value()) {
        EXPECT_EQ(answer->forced().value_or(tokens[moved]), tokens[moved]);
        for (size_t i = moved; i < tokens.size(); ++i) {
          v1::Delta delta;
          seen.end = answer->Push({.token = tokens[i]}, 0, delta);
          seen.Add(delta);
        }
      }
      EXPECT_EQ(seen, whole) << moved;
      v1::Finished a, b;
      AddPartsReport(*first->parts(), &a);
      AddPartsReport(*answer->parts(), &b);
      EXPECT_EQ(a.DebugString(), b.DebugString());
    }
  }
}

}  // namespace
}  // namespace baton::decode_service
