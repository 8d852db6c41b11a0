#include "text/output/parser.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "nlohmann/json.hpp"
#include "tests/seed.h"
#include "tests/unit/text/output/parsed.h"

namespace baton::output {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Types(std::string_view, std::string_view parameter) {
  if (parameter == "zip") return "string";
  return parameter == "days" ? "integer" : "";
}

struct Vector {
  std::string format;
  std::string text;
  std::vector<Part> parts;  // ids are compared where they are given
};

Part Text(std::string text) { return {.kind = PartKind::kText, .text = std::move(text)}; }
Part Thought(std::string text) { return {.kind = PartKind::kThinking, .text = std::move(text)}; }
Part Called(std::string name, std::string arguments, std::string id = "") {
  return {.kind = PartKind::kToolCall,
          .text = std::move(arguments),
          .name = std::move(name),
          .id = std::move(id)};
}

const std::vector<Vector>& Vectors() {
  static const auto* vectors = new std::vector<Vector>{
      {"hermes", "Hello, world!\n", {Text("Hello, world!\n")}},
      {"hermes", "  two spaces", {Text("  two spaces")}},
      {"hermes", "<think>\nhm\n</think>\n\nYes.", {Thought("hm"), Text("Yes.")}},
      {"hermes", "<think>\n\n</think>\n\nYes.", {Text("Yes.")}},
      {"hermes",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\":1,  \"a\": [2]}}\n</tool_call>",
       {Called("f", "{\"b\":1,  \"a\": [2]}")}},
      {"hermes",
       "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{}}\n</tool_call>\n"
       "<tool_call>\n{\"arguments\": {\"x\": \"</tool>\"}, \"name\": \"g\"}\n</tool_call>\n",
       {Thought("hm"), Text("Let me see."), Called("f", "{}"), Called("g", "{\"x\": \"</tool>\"}")}},
      // A call ends thinking, and the closer that comes after it means nothing.
      {"hermes",
       "<think>\nhm\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n</think>\n\nYes.",
       {Thought("hm"), Called("f", "{}"), Text("Yes.")}},
      {"hermes",
       "<think>\nhm\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
       {Thought("hm"), Called("f", "{}")}},
      // The closer never came, and the call is whole.
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}", {Called("f", "{\"a\": 1}")}},
      {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}", {Called("f", "{\"a\": \"}\"}")}},
      {"llama3_json",
       "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
       {Called("f", "{}"), Called("g", "{}")}},
      {"llama3_json", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", {Called("f", "{}")}},
      {"llama3_json", "{\"answer\": 42} is it", {Text("{\"answer\": 42} is it")}},
      // Control characters as they are, where JSON wants escapes: the line breaks of code.
      {"hermes",
       "<tool_call>\n{\"name\": \"f\",\n\"arguments\": {\"code\":\n\"if x:\n\treturn "
       "'{'\r\n\"}}\n</tool_call>",
       {Called("f", "{\"code\":\n\"if x:\\n\\treturn '{'\\r\\n\"}")}},
      {"hermes",
       "<tool_call>\n{\"arguments\": {\"code\": \"a\n\\\"b\"}, \"name\": \"f\"}\n</tool_call>",
       {Called("f", "{\"code\": \"a\\n\\\"b\"}")}},
      {"llama3_json",
       "{\"name\": \"f\", \"parameters\": {\"code\": \"a\nb\x01\"}}",
       {Called("f", "{\"code\": \"a\\nb\\u0001\"}")}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"x\n\"}, \"id\": \"abcdef123\"}]",
       {Called("f", "{\"a\": \"x\\n\"}", "abcdef123")}},
      {"mistral_v11", "[TOOL_CALLS]f[ARGS]{\"a\": \"x\n\n\"}", {Called("f", "{\"a\": \"x\\n\\n\"}")}},
      {"glm",
       "<tool_call>f\n<arg_key>list</arg_key>\n<arg_value>[\"x\ny\"]</arg_value>\n</tool_call>",
       {Called("f", "{\"list\":[\"x\\ny\"]}")}},
      {"pythonic", "[f(a=\"x\ny\")]", {Called("f", "{\"a\":\"x\\ny\"}")}},
      {"pythonic",
       "[f(a=\"x\", b=1, c=[True, None, {'k': -1.5}]), g()]",
       {Called("f", "{\"a\":\"x\",\"b\":1,\"c\":[true,null,{\"k\":-1.5}]}"), Called("g", "{}")}},
      {"pythonic", "<|python_start|>[f(a='it\\'s ]')]<|python_end|>", {Called("f", "{\"a\":\"it's ]\"}")}},
      {"pythonic", "[1] says so", {Text("[1] says so")}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdef123\"}]",
       {Called("f", "{\"a\": 1}", "abcdef123")}},
      {"mistral",
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
       {Called("f", "{}"), Called("g", "{}")}},
      {"mistral_v11",
       "[THINK]hm[/THINK]So:[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abcdef123[ARGS]{}",
       {Thought("hm"), Text("So:"), Called("f", "{\"a\": 1}"), Called("g", "{}", "abcdef123")}},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=days>\n3\n</parameter>\n<parameter=zip>\n01234\n</parameter>\n"
       "<parameter=code>\n  a\n\"b\"\n</parameter>\n</function>\n</tool_call>",
       {Called("f", "{\"days\":3,\"zip\":\"01234\",\"code\":\"  a\\n\\\"b\\\"\"}")}},
      // The opener is often missing.
      {"qwen3_coder",
       "I look.\n<function=f>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
       {Text("I look."), Called("f", "{\"days\":3}")}},
      {"glm",
       "<tool_call>f\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>zip</arg_key>\n"
       "<arg_value>0</arg_value>\n</tool_call>",
       {Called("f", "{\"days\":3,\"zip\":\"0\"}")}},
      {"glm", "<tool_call>now</tool_call>", {Called("now", "{}")}},
      {"deepseek_v3",
       "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<"
       "｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {Text("Yes."), Called("f", "{\"a\": 1}"), Called("g", "{}")}},
      {"deepseek_v31",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
       "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {Called("f", "{\"a\": 1}")}},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
       "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       {Called("f", "{\"a\": 1}", "functions.f:0"), Called("g", "{}", "functions.g:1")}},
      {"harmony",
       "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>{\"a\": \"<|end|>\"}<|call|>",
       {Thought("hm"), Called("f", "{\"a\": \"<|end|>\"}")}},
      {"harmony", "<|channel|>final<|message|>Yes.<|return|>", {Text("Yes.")}},
      {"harmony", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", {Called("f", "{}")}},
      {"harmony",
       "<|channel|>commentary<|message|>I look.<|end|>\n<|start|>assistant<|channel|>final<|message|>Yes.",
       {Text("I look."), Text("Yes.")}},
      {"harmony", "No channels.", {Text("No channels.")}},
      {"harmony", std::string(300, 'x') + "<|end|>", {Text(std::string(300, 'x'))}},
      {"harmony",
       "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>",
       {Called("f", "{}")}},
      {"none", "<think>\nhm</think> <tool_call>", {Text("<think>\nhm</think> <tool_call>")}},
  };
  return *vectors;
}

// Ids that the format has none of are made; two calls never have the same.
Parsed WithoutMadeIds(Parsed parsed, const std::vector<Part>& expected) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < parsed.parts.size(); ++i) {
    Part& part = parsed.parts[i];
    if (part.kind != PartKind::kToolCall) continue;
    EXPECT_FALSE(part.id.empty());
    EXPECT_EQ(std::count(ids.begin(), ids.end(), part.id), 0);
    ids.push_back(part.id);
    if (i < expected.size() && expected[i].id.empty()) {
      EXPECT_THAT(part.id, SizeIs(9));
      part.id.clear();
    }
  }
  return parsed;
}

TEST(ParserTest, ReadsEveryFormat) {
  for (const Vector& vector : Vectors()) {
    SCOPED_TRACE(vector.format + ": " + vector.text);
    const Parsed parsed = WithoutMadeIds(Parse(vector.format, vector.text, {.type = Types}), vector.parts);
    EXPECT_EQ(parsed.parts, vector.parts);
    EXPECT_EQ(parsed.warnings, 0);
  }
}

// The text in pieces of any size, as a detokenizer may give it: the same parts.
Parsed ParsePieces(std::string_view format, std::string_view text, std::mt19937_64& random, size_t longest) {
  Parser parser(Table(format, WordLike()), {.type = Types});
  std::vector<PartEvent> events;
  while (!text.empty()) {
    const size_t size = std::min(text.size(), 1 + random() % longest);
    parser.Push(TokenId(100), text.substr(0, size), &events);  // an ordinary token
    text.remove_prefix(size);
  }
  parser.Finish("", &events);
  return Fold(events, parser);
}

TEST(ParserTest, AnyGroupingGivesTheSameParts) {
  const uint64_t seed = TestSeed();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const Vector& vector : Vectors()) {
    SCOPED_TRACE(vector.format + ": " + vector.text);
    const Parsed whole = ParsePieces(vector.format, vector.text, random, 1u << 20);
    EXPECT_EQ(WithoutMadeIds(whole, vector.parts).parts, vector.parts);
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(ParsePieces(vector.format, vector.text, random, 1 + i % 7), whole);
    }
  }
}

TEST(ParserTest, AnswersThatArePrefixesNeverFailAndLoseNothing) {
  for (const Vector& vector : Vectors()) {
    if (vector.format == "harmony") continue;  // headers of channels are no text
    for (size_t size = 0; size <= vector.text.size(); ++size) {
      if (size < vector.text.size() && (vector.text[size] & 0xC0) == 0x80) continue;
      SCOPED_TRACE(vector.format + ": " + vector.text.substr(0, size));
      const Parsed parsed = Parse(vector.format, vector.text.substr(0, size), {.type = Types});
      bool called = false;
      for (const Part& part : parsed.parts) {
        if (part.kind != PartKind::kToolCall) continue;
        called = true;
        EXPECT_TRUE(!part.complete || nlohmann::json::accept(part.text)) << part.text;
      }
      if (called) continue;
      // Without its white space and markers, the text is all there.
      std::string all;
      for (const Part& part : parsed.parts) all += part.text;
      const auto bare = [&](std::string text) {
        for (const std::string_view marker : Markers(Format(vector.format))) {
          for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker)) {
            text.erase(at, marker.size());
          }
        }
        std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
        return text;
      };
      EXPECT_EQ(bare(all), bare(vector.text.substr(0, size)));
    }
  }
}

TEST(ParserTest, WhatDoesNotParseLeavesAsText) {
  const std::vector<std::pair<std::string, std::string>> broken = {
      {"hermes", "So <tool_call>\n{\"name\": \"f\", \"arguments\": \"{\"}\n</tool_call>"},
      {"hermes", "<tool_call>{\"arguments\": {}}</tool_call>"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": "},
      {"mistral", "[TOOL_CALLS][{\"name\": 5}]"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<param=a>\n1\n</tool_call>"},
      {"glm", "<tool_call>\n<arg_key>a</arg_key>\n</tool_call>"},
      {"kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[1]<|tool_call_end|>"},
  };
  for (const auto& [format, text] : broken) {
    SCOPED_TRACE(format + ": " + text);
    const Parsed parsed = Parse(format, text, {.type = Types});
    EXPECT_EQ(parsed.calls, 0);
    EXPECT_EQ(parsed.warnings, 1);
    ASSERT_THAT(parsed.parts, SizeIs(1));
    EXPECT_EQ(parsed.parts[0].kind, PartKind::kText);
    EXPECT_EQ(parsed.parts[0].text, text);
  }
}

TEST(ParserTest, ACallAfterABrokenOneIsRead) {
  const Parsed parsed =
      Parse("hermes",
            "<tool_call>\nnothing\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n"
            "</tool_call>");
  EXPECT_EQ(parsed.warnings, 1);
  ASSERT_EQ(parsed.calls, 1);
  EXPECT_EQ(parsed.parts.back().name, "f");
  EXPECT_THAT(parsed.parts.front().text, HasSubstr("nothing"));
}

TEST(ParserTest, ThinkingThatThePromptBegan) {
  const Parsed parsed = Parse("hermes", "hm\n</think>\n\nYes.", {.thinking = true});
  EXPECT_EQ(parsed.parts, (std::vector<Part>{Thought("hm"), Text("Yes.")}));
  const Parsed cut = Parse("hermes", "hm, let", {.thinking = true});
  ASSERT_THAT(cut.parts, SizeIs(1));
  EXPECT_EQ(cut.parts[0].kind, PartKind::kThinking);
  EXPECT_FALSE(cut.parts[0].complete);
}

TEST(ParserTest, MarkupThatIsNoCallStaysInThinking) {
  const Parsed parsed =
      Parse("hermes", "<think>\nI write <tool_call>x</tool_call> for a call.\n</think>\nYes.");
  EXPECT_EQ(parsed.parts,
            (std::vector<Part>{Thought("I write <tool_call>x</tool_call> for a call."), Text("Yes.")}));
  EXPECT_EQ(parsed.warnings, 1);
}

TEST(ParserTest, ACutCallSaysThatItIsIncomplete) {
  const Parsed parsed = Parse("hermes", "I look.\n<tool_call>\n{\"name\": \"f\", \"argu");
  ASSERT_THAT(parsed.parts, SizeIs(1));
  EXPECT_EQ(parsed.parts[0].text, "I look.\n<tool_call>\n{\"name\": \"f\", \"argu");
  EXPECT_FALSE(parsed.parts[0].complete);
}

TEST(ParserTest, BracketsThatCloseNothingAreText) {
  // None of a marker that a call's text holds is lost when the text ends inside it.
  const std::string text = "[TOOL_CALLS]][ARGS] so";
  EXPECT_EQ(Parse("mistral", text).parts, (std::vector<Part>{Text(text)}));
}

TEST(ParserTest, ThinkingIsCountedFromItsOpenerToItsCloser) {
  Parser parser(Table("mistral_v11"), {});
  std::vector<PartEvent> events;
  std::vector<bool> thinking;
  for (const char* piece : {"a", "[THINK]", "b", "c", "[/THINK]", "d"}) {
    parser.Push(TokenId(100), piece, &events);
    thinking.push_back(parser.thinking());
  }
  EXPECT_EQ(thinking, (std::vector<bool>{false, false, false, false, false, false}))
      << "thinking begins an answer, not a sentence";
  Parser begun(Table("mistral_v11"), {});
  thinking.clear();
  for (const char* piece : {"[THINK]", "b", "c", "[/THINK]", "d"}) {
    begun.Push(TokenId(100), piece, &events);
    thinking.push_back(begun.thinking());
  }
  EXPECT_EQ(thinking, (std::vector<bool>{true, true, true, true, false}));
}

TEST(ParserTest, WithoutToolsNothingIsACall) {
  const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const Parsed parsed = Parse("hermes", text, {.tools = false});
  EXPECT_EQ(parsed.parts, (std::vector<Part>{Text(text)}));
  EXPECT_EQ(parsed.warnings, 0);
  const std::string bare = "{\"name\": \"f\", \"parameters\": {}}";
  EXPECT_EQ(Parse("llama3_json", bare, {.tools = false}).parts, (std::vector<Part>{Text(bare)}));
}

TEST(ParserTest, SpelledMarkersAreQuotedText) {
  // "<tool_call>" of ordinary tokens, where the tokenizer has a token for it.
  Parser parser(Table("hermes"), {});
  std::vector<PartEvent> events;
  for (const char* piece : {"<tool", "_call>", "{\"name\": \"f\"}"})
    parser.Push(TokenId(100), piece, &events);
  parser.Finish("", &events);
  const Parsed parsed = Fold(events, parser);
  EXPECT_EQ(parsed.parts, (std::vector<Part>{Text("<tool_call>{\"name\": \"f\"}")}));
}

// Names and arguments that each token's events add, as a client sees them while the answer is written.
std::vector<std::string> Arguments(std::string_view format, const std::vector<std::string>& pieces) {
  Parser parser(Table(format, WordLike()), {.type = Types});
  std::vector<std::string> seen;
  for (const std::string& piece : pieces) {
    std::vector<PartEvent> events;
    parser.Push(TokenId(100), piece, &events);
    std::string arguments;
    for (const PartEvent& event : events) {
      if (event.type == PartEvent::Type::kStart && event.kind == PartKind::kToolCall) arguments += event.name;
      if (event.type == PartEvent::Type::kArguments) arguments += event.text;
    }
    seen.push_back(arguments);
  }
  return seen;
}

TEST(ParserTest, ArgumentsLeaveAsTheyAreWritten) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(Arguments("hermes", {"<tool_call>\n{\"name\": \"f\"", ", \"arguments\": ", "{\"a\":", " [1", "]}",
                                 "}\n", "</tool_call>"}),
            (Pieces{"", "", "f{\"a\":", " [1", "]}", "", ""}));
  EXPECT_EQ(Arguments("mistral_v11", {"[TOOL_CALLS]f", "[ARGS]", "{\"a\":", "1}"}),
            (Pieces{"", "", "f{\"a\":", "1}"}));
  EXPECT_EQ(Arguments("deepseek_v3",
                      {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n", "```js", "on\n{", "}\n```"}),
            (Pieces{"", "", "f{", "}"}));
  // A list leaves call by call.
  EXPECT_EQ(Arguments("mistral",
                      {"[TOOL_CALLS][{\"name\": \"f\", ", "\"arguments\": {}}", ", {\"name\": \"g\"", "}]"}),
            (Pieces{"", "f{}", "", "g{}"}));
  // A text goes on inside its quotes; what may be the closing tag waits, and so does the break before it.
  EXPECT_EQ(Arguments("qwen3_coder",
                      {"<function=f>\n<parameter=zip>", "\nsome lines\nof \"text\" are", " here\n</para",
                       "meter>\n<parameter=days>\n", "3\n</parameter>", "\n</function>\n</tool_call>"}),
            (Pieces{"f{\"zip\":", "\"some lines\\nof \\\"text\\\" are", " here", "\",\"days\":", "3", "}"}));
  EXPECT_EQ(
      Arguments("glm", {"<tool_call>f\n<arg_key>days</arg_key>", "<arg_value>3</arg_value>", "</tool_call>"}),
      (Pieces{"f{\"days\":", "3", "}"}));
}

TEST(ParserTest, ACallThatHasBegunAndIsNotWholeStaysACall) {
  const Parsed cut = Parse("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"cut");
  ASSERT_THAT(cut.parts, SizeIs(1));
  EXPECT_EQ(cut.parts[0].kind, PartKind::kToolCall);
  EXPECT_EQ(cut.parts[0].name, "f");
  EXPECT_EQ(cut.parts[0].text, "{\"a\": \"cut");
  EXPECT_FALSE(cut.parts[0].complete);
  EXPECT_EQ(cut.calls, 0);
  EXPECT_EQ(cut.warnings, 1);
  // Not JSON, and a text behind the call.
  const Parsed broken =
      Parse("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": }}\n</tool_call>\nSo.");
  ASSERT_THAT(broken.parts, SizeIs(2));
  EXPECT_EQ(broken.parts[0].text, "{\"a\": }");
  EXPECT_FALSE(broken.parts[0].complete);
  EXPECT_EQ(broken.parts[1], Text("So."));
  EXPECT_EQ(broken.warnings, 1);
  // A key twice, which shows when the call is whole.
  const Parsed twice = Parse("qwen3_coder",
                             "<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=a>\n2\n</parameter>\n"
                             "</function>\n</tool_call>");
  ASSERT_THAT(twice.parts, SizeIs(1));
  EXPECT_FALSE(twice.parts[0].complete);
}

TEST(ParserTest, AnOpenQuoteSwallowsNoLaterCall) {
  const std::string next = "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"b\": 1}}\n</tool_call>";
  for (const std::string between : {"</tool_call>\n", "</tool_call>", "\n</tool_call>", "", "\n"}) {
    SCOPED_TRACE(between);
    const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"open" + between + next;
    Parser parser(Table("hermes", WordLike()), {});
    std::vector<PartEvent> events;
    for (const char c : text) parser.Push(TokenId(100), std::string(1, c), &events);
    parser.Finish("", &events);
    const Parsed parsed = Fold(events, parser);
    ASSERT_EQ(parsed.calls, 1);
    EXPECT_EQ(parsed.warnings, 1);
    EXPECT_FALSE(parsed.parts.front().complete);
    EXPECT_EQ(parsed.parts.back().name, "g");
    EXPECT_EQ(parsed.parts.back().text, "{\"b\": 1}");
  }
  // And what a whole string quotes is quoted.
  const std::string quoted =
      "{\"a\": \"write </tool_call> or <tool_call>x</tool_call>, \\\"so\\\"\", \"b\": \"</tool_call>\"}";
  const Parsed whole =
      Parse("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": " + quoted + "}\n</tool_call>");
  ASSERT_THAT(whole.parts, SizeIs(1));
  EXPECT_EQ(whole.parts[0].text, quoted);
  EXPECT_EQ(whole.warnings, 0);
}

TEST(ParserTest, OnlyToolsOfTheRequestAreCalled) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  Parser parser(Table("hermes"), {.names = {"g", "h"}});
  std::vector<PartEvent> events;
  const TokenId open = QwenLike()->Encode("<tool_call>", false)->at(0);
  const TokenId close = QwenLike()->Encode("</tool_call>", false)->at(0);
  parser.Push(open, "", &events);
  parser.Push(TokenId(100), "{\"name\": \"f\", \"arguments\": {}}", &events);
  parser.Push(close, "", &events);
  parser.Finish("", &events);
  EXPECT_EQ(parser.warnings(Warning::kUnknownTool), 1);
  EXPECT_EQ(parser.warnings(Warning::kMalformedCall), 0);
  EXPECT_EQ(Fold(events, parser).parts,
            (std::vector<Part>{Text("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>")}));
  EXPECT_EQ(Parse("hermes", call, {.names = {"g", "f"}}).calls, 1);
}

// The text that leaves before `text` is whole.
std::string Early(std::string_view format, const std::string& text, std::vector<std::string> names) {
  Parser parser(Table(format, WordLike()), {.names = std::move(names)});
  std::vector<PartEvent> events;
  for (const char c : text) parser.Push(TokenId(100), std::string(1, c), &events);
  std::string early;
  for (const PartEvent& event : events) early += event.text;
  return early;
}

TEST(ParserTest, AnAnswerThatOnlyBeginsAsABareCallIsNotHeldBack) {
  EXPECT_EQ(Early("llama3_json", "{\"answer\": [1, 2", {"f"}), "{\"answer\": [1, 2");
  EXPECT_EQ(Early("llama3_json", "{\"name\": \"Bob\", \"age\": 3", {"f"}), "{\"name\": \"Bob\", \"age\": 3");
  EXPECT_EQ(Early("llama3_json", "{\"name\": \"f\", \"par", {"f"}), "");
  EXPECT_EQ(Early("pythonic", "[1, 2", {"f"}), "[1, 2");
  EXPECT_EQ(Early("pythonic", "[Note: this", {"f"}), "[Note: this");
  EXPECT_EQ(Early("pythonic", "[sum(x", {"f"}), "[sum(x");
  EXPECT_EQ(Early("pythonic", "[f(x=", {"f"}), "");
  // Text that names a tool and is no call gives a warning.
  EXPECT_EQ(Parse("llama3_json", "{\"name\": \"f\", \"parameters\": [1]}", {.names = {"f"}}).warnings, 1);
  EXPECT_EQ(Parse("pythonic", "[f(x)]", {.names = {"f"}}).warnings, 1);
  EXPECT_EQ(Parse("pythonic", "[f(x=1", {.names = {"f"}}).warnings, 1);
  EXPECT_EQ(Parse("llama3_json", "{\"name\": \"Bob\"}", {.names = {"f"}}).warnings, 0);
}

TEST(ParserTest, WordsOfPythonAreValuesWhereTheSchemaSaysSo) {
  const auto type = [](std::string_view, std::string_view parameter) -> std::string {
    return parameter == "exact" ? "boolean" : parameter == "said" ? "string" : "";
  };
  const Parsed parsed =
      Parse("qwen3_coder",
            "<function=f>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=said>\nFalse\n"
            "</parameter>\n<parameter=other>\nTrue\n</parameter>\n</function>\n</tool_call>",
            {.type = type});
  ASSERT_THAT(parsed.parts, SizeIs(1));
  EXPECT_EQ(parsed.parts[0].text, "{\"exact\":true,\"said\":\"False\",\"other\":\"True\"}");
}

TEST(ParserTest, IdsAreMadeOfTheRequestAndThePlace) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const auto id = [&](uint64_t seed) { return Parse("hermes", call, {.id_seed = seed}).parts[0].id; };
  EXPECT_EQ(id(1), id(1));
  EXPECT_NE(id(1), id(2));
}

TEST(ParserTest, DeepAndLongAnswersStayLinear) {
  std::string deep = "<tool_call>{\"name\": \"f\", \"arguments\": ";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  EXPECT_EQ(Parse("hermes", deep).warnings, 1);
  std::string python = "[f(a=";
  for (int i = 0; i < 100'000; ++i) python += "[";
  EXPECT_EQ(Parse("pythonic", python).calls, 0);
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "<function=f><parameter=a>1";
  EXPECT_EQ(Parse("qwen3_coder", many).calls, 0);
  std::string named = "[TOOL_CALLS]";
  for (int i = 0; i < 100'000; ++i) named += "[ARGS";
  EXPECT_EQ(Parse("mistral_v11", named).warnings, 1);
  std::string quoted = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"";
  for (int i = 0; i < 20'000; ++i) quoted += "x</tool_call>y<tool_call>";
  EXPECT_GE(Parse("hermes", quoted).warnings, 1);
}

}  // namespace
}  // namespace baton::output
