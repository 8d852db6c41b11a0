// Grammars of calls against the parser: what a grammar lets a random walk write, the parser reads as calls of
// the tools that were offered, with arguments that obey; and the way in which each format is written by its
// models obeys the grammar.
#include "common/output/call_grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>

#include "common/text/grammar.h"
#include "nlohmann/json.hpp"
#include "tests/unit/output/parsed.h"

namespace baton::output {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kWeather = R"({"description": "How the weather is? {", "properties": {
    "place": {"type": "string", "minLength": 1, "maxLength": 6, "description": "a place"},
    "days": {"type": "integer", "minimum": 1, "maximum": 14},
    "near": {"type": "array", "items": {"$ref": "#/$defs/side"}, "maxItems": 2}},
    "required": ["place", "days"], "additionalProperties": false,
    "$defs": {"side": {"enum": ["left", "a \"b\""]}}})";
constexpr const char* kNow = R"({"type": "object", "properties": {}, "additionalProperties": false})";

bool Obeys(const std::string& name, const std::string& arguments) {
  const Json value = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return false;
  if (name == "get") return value.empty();
  if (name != "get_weather" || !value.contains("place") || !value["place"].is_string()) return false;
  if (!value.contains("days") || !value["days"].is_number_integer()) return false;
  if (value["place"] == "" || value["days"] < 1 || value["days"] > 14) return false;
  if (value.size() == 2) return true;
  if (value.size() != 3 || !value.contains("near") || value["near"].size() > 2) return false;
  return std::ranges::all_of(value["near"],
                             [](const Json& near) { return near == "left" || near == "a \"b\""; });
}

// The tokenizer of the golden tests, which spells most markers, with those of a format as tokens.
std::shared_ptr<const text::Tokenizer> TokenizerWith(const OutputFormat& format) {
  std::stringstream read;
  read << std::ifstream(BATON_SOURCE_DIR "/tests/golden/text/tokenizers/qwen_like/tokenizer.json").rdbuf();
  Json json = Json::parse(read.str());
  Json& added = json["added_tokens"];
  int next = added.back()["id"].get<int>() + 1;
  for (const std::string_view marker : Markers(format)) {
    if (std::ranges::any_of(added, [&](const Json& token) { return token["content"] == marker; })) continue;
    Json token = added.back();
    token["id"] = next++;
    token["content"] = marker;
    added.push_back(token);
  }
  auto made = text::Tokenizer::FromJson(json.dump());
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

class Rig {
 public:
  Rig(std::string_view format, bool spelled)
      : name(fmt::format("{}{}", format, spelled ? ", spelled" : "")),
        tokenizer_(spelled ? QwenLike() : TokenizerWith(Format(format))),
        markers(Format(format), *tokenizer_),
        vocabulary_(text::GrammarVocabulary::Make(*tokenizer_).value()) {}

  text::GrammarMatcher Compile(const CallShape& shape) const {
    const std::vector<CallableTool> tools = {{"get", ArgumentsGrammar(kNow).value()},
                                             {"get_weather", ArgumentsGrammar(kWeather).value()}};
    const std::string lark = CallGrammar(markers, tools, shape);
    auto matcher = vocabulary_->Compile(lark);
    EXPECT_TRUE(matcher.ok()) << name << ": " << matcher.status() << "\n" << lark;
    return *std::move(matcher);
  }

  std::vector<TokenId> Tokens(std::string_view text) const { return tokenizer_->Encode(text, false).value(); }

  // Whether the grammar takes all of the text, and may end there.
  bool Takes(text::GrammarMatcher matcher, std::string_view text) const {
    for (const TokenId token : Tokens(text)) {
      if (!matcher.Push(token).ok()) return false;
    }
    text::TokenMask mask(vocabulary_->mask_words());
    return matcher.Mask(mask).value();
  }

  // A random walk from where `tokens` led, which are its beginning. Control tokens are as likely as all
  // others together. False: it became too long.
  bool Walk(text::GrammarMatcher matcher, std::mt19937_64& random, std::vector<TokenId>* tokens) const {
    for (const TokenId token : *tokens) EXPECT_TRUE(matcher.Push(token).ok()) << name;
    text::TokenMask mask(vocabulary_->mask_words());
    while (tokens->size() < 300) {
      const bool ends = matcher.Mask(mask).value();
      std::vector<TokenId> controls, others;
      for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id) {
        if (!text::Allows(mask, TokenId(id))) continue;
        (tokenizer_->IsControl(TokenId(id)) ? controls : others).emplace_back(id);
      }
      if (ends && ((controls.empty() && others.empty()) || random() % 3 == 0)) return true;
      EXPECT_TRUE(ends || !controls.empty() || !others.empty()) << name;
      const auto& from = others.empty() || (!controls.empty() && random() % 2 == 0) ? controls : others;
      if (from.empty()) return false;
      tokens->push_back(from[random() % from.size()]);
      EXPECT_TRUE(matcher.Push(tokens->back()).ok());
    }
    return false;
  }

  Parsed Read(const std::vector<TokenId>& tokens) const {
    Parser parser(markers, {.names = {"get", "get_weather"}});
    text::Detokenizer detokenizer(tokenizer_, /*keep_special=*/false);
    std::vector<PartEvent> events;
    for (const TokenId token : tokens) parser.Push(token, detokenizer.Push(token), &events);
    parser.Finish(detokenizer.Flush(), &events);
    return Fold(events, parser);
  }

  std::string Text(const std::vector<TokenId>& tokens) const {
    std::string text;
    for (const TokenId token : tokens) text += tokenizer_->TokenBytes(token);
    return text;
  }

  const std::string name;

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;

 public:
  const MarkerTable markers;

 private:
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
};

struct Case {
  const char* format;
  bool spelled;
};
constexpr Case kCases[] = {{"hermes", false},       {"hermes", true},      {"llama3_json", false},
                           {"llama3_json", true},   {"mistral", false},    {"mistral", true},
                           {"mistral_v11", false},  {"mistral_v11", true}, {"deepseek_v3", false},
                           {"deepseek_v31", false}, {"kimi_k2", false},    {"harmony", false}};

// As models of a format write a call of get_weather with `arguments`, behind what they write before it.
struct Native {
  std::string_view text;  // before the first call
  std::string_view open, next, close;
};
const std::map<std::string_view, Native> kNative = {
    {"hermes",
     {"I look.\n", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ",
      "}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", "}\n</tool_call>"}},
    {"llama3_json",
     {"", "{\"name\": \"get_weather\", \"parameters\": ", "}; {\"name\": \"get_weather\", \"parameters\": ",
      "}"}},
    {"mistral",
     {"I look.", "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": ",
      ", \"id\": \"abcDEF123\"}, {\"name\": \"get_weather\", \"arguments\": ", "}]"}},
    {"mistral_v11",
     {"I look.", "[TOOL_CALLS]get_weather[ARGS]", "[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]", ""}},
    {"deepseek_v3",
     {"I look.", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n",
      "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n",
      "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}},
    {"deepseek_v31",
     {"I look.", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>",
      "<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>",
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}},
    {"kimi_k2",
     {"I look.",
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>",
      "<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>",
      "<|tool_call_end|><|tool_calls_section_end|>"}},
    {"harmony",
     {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant",
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>", "", "<|call|>"}},
};

constexpr const char* kGood = R"({"place": "Oslo", "days": 3})";
constexpr const char* kBad = R"({"place": "Oslo", "days": 30})";

std::string Calls(const Native& native, std::string_view first, std::string_view second = "") {
  std::string text = fmt::format("{}{}", native.open, first);
  if (!second.empty()) text += fmt::format("{}{}", native.next, second);
  return text + std::string(native.close);
}

TEST(CallGrammarTest, WhatModelsWriteObeysIfTheirArgumentsDo) {
  for (const Case& one : kCases) {
    const Rig rig(one.format, one.spelled);
    ASSERT_TRUE(CanConstrainCalls(rig.markers, /*thinks=*/false)) << rig.name;
    const Native& native = kNative.at(one.format);
    const text::GrammarMatcher required = rig.Compile({.required = true});
    const text::GrammarMatcher single = rig.Compile({.required = true, .one_call = true});
    const text::GrammarMatcher automatic = rig.Compile({});
    EXPECT_TRUE(rig.Takes(required.Fork(), Calls(native, kGood))) << rig.name;
    EXPECT_TRUE(rig.Takes(single.Fork(), Calls(native, kGood))) << rig.name;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), Calls(native, kGood))) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), Calls(native, kBad))) << rig.name;
    EXPECT_FALSE(rig.Takes(automatic.Fork(), Calls(native, kBad))) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), "Yes.")) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), "")) << rig.name;
    const bool channels = rig.markers.format().channels;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), channels ? "<|channel|>final<|message|>Yes." : "Yes."))
        << rig.name;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), std::string(native.text) + Calls(native, kGood))) << rig.name;
    EXPECT_FALSE(rig.Takes(automatic.Fork(), std::string(native.text) + Calls(native, kBad))) << rig.name;
    if (native.next.empty()) continue;
    EXPECT_TRUE(rig.Takes(required.Fork(), Calls(native, kGood, kGood))) << rig.name;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), Calls(native, kGood, kGood))) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), Calls(native, kGood, kBad))) << rig.name;
    EXPECT_FALSE(rig.Takes(automatic.Fork(), Calls(native, kGood, kBad))) << rig.name;
    EXPECT_FALSE(rig.Takes(single.Fork(), Calls(native, kGood, kGood))) << rig.name;
  }
}

TEST(CallGrammarTest, TheParserReadsWhatARandomWalkWrites) {
  std::mt19937_64 random(20);
  for (const Case& one : kCases) {
    const Rig rig(one.format, one.spelled);
    for (const bool required : {true, false}) {
      for (const bool one_call : {true, false}) {
        const text::GrammarMatcher start = rig.Compile({.required = required, .one_call = one_call});
        int called = 0;
        for (int walk = 0; walk < 6; ++walk) {
          std::vector<TokenId> tokens;
          // Random text hardly ever spells a marker.
          if (!required && walk % 2 == 0) tokens = rig.Tokens(kNative.at(one.format).open);
          if (!rig.Walk(start.Fork(), random, &tokens)) continue;
          const Parsed read = rig.Read(tokens);
          const std::string said = rig.name + (required ? ", required: " : ": ") + rig.Text(tokens);
          EXPECT_EQ(read.warnings, 0) << said;
          for (const Part& part : read.parts) {
            EXPECT_FALSE(required && part.kind == PartKind::kText) << said;
            if (part.kind != PartKind::kToolCall) continue;
            EXPECT_TRUE(part.complete) << said;
            EXPECT_TRUE(Obeys(part.name, part.text)) << said;
          }
          EXPECT_TRUE(!required || read.calls >= 1) << said;
          EXPECT_TRUE(!one_call || read.calls <= 1) << said;
          called += read.calls > 0 ? 1 : 0;
        }
        EXPECT_GE(called, required ? 3 : 1) << rig.name << required << one_call;
      }
    }
  }
}

TEST(CallGrammarTest, AnAnswerIsCallsOrATextThatObeys) {
  const Rig rig("hermes", false);
  const std::string call = Calls(kNative.at("hermes"), kGood);
  const text::GrammarMatcher start = rig.Compile({.text = "start: CHOICE\nCHOICE: \"yes\" | \"no\"\n"});
  EXPECT_TRUE(rig.Takes(start.Fork(), "yes"));
  EXPECT_TRUE(rig.Takes(start.Fork(), call));
  EXPECT_FALSE(rig.Takes(start.Fork(), "maybe"));
  EXPECT_FALSE(rig.Takes(start.Fork(), "yes" + call));
  EXPECT_FALSE(rig.Takes(start.Fork(), Calls(kNative.at("hermes"), kBad)));
}

TEST(CallGrammarTest, SaysWhichFormatsItCanWrite) {
  for (const OutputFormat& format : Formats()) {
    const bool json =
        format.layout == Layout::kObject || format.layout == Layout::kList || format.layout == Layout::kNamed;
    const auto with = TokenizerWith(format);
    EXPECT_EQ(CanConstrainCalls(MarkerTable(format, *with), false), json) << format.name;
    const bool spelled =
        json && format.name != "harmony" && (format.section_open.empty() || format.call_open.empty());
    EXPECT_EQ(CanConstrainCalls(MarkerTable(format, *QwenLike()), false), spelled) << format.name;
  }
  // Inside thinking, a call that is spelled could not be told from text in time.
  EXPECT_TRUE(CanConstrainCalls(MarkerTable(Format("hermes"), *TokenizerWith(Format("hermes"))), true));
  EXPECT_FALSE(CanConstrainCalls(MarkerTable(Format("hermes"), *QwenLike()), true));
}

TEST(CallGrammarTest, ArgumentsAreAnObject) {
  EXPECT_TRUE(ArgumentsGrammar("").ok());
  EXPECT_THAT(*ArgumentsGrammar(R"({"properties": {"type": {"description": "?"}}})"),
              testing::AllOf(HasSubstr(R"("type":"object")"), testing::Not(HasSubstr("?\""))));
  EXPECT_THAT(*ArgumentsGrammar(R"({"type": ["null", "object"]})"), HasSubstr(R"("type":"object")"));
  EXPECT_THAT(ArgumentsGrammar(R"({"type": "string"})").status().message(), HasSubstr("\"string\""));
  EXPECT_THAT(ArgumentsGrammar("[]").status().message(), HasSubstr("object"));
  EXPECT_TRUE(absl::IsInvalidArgument(ArgumentsGrammar("{").status()));
}

}  // namespace
}  // namespace baton::output
