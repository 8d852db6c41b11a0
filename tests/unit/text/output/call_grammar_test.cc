// Grammars of calls against the parser: what a grammar lets a random walk write, the parser reads as calls of
// the tools that were offered, with arguments that obey; and the way in which each format is written by its
// models obeys the grammar.
#include "text/output/call_grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>

#include "nlohmann/json.hpp"
#include "tests/unit/text/output/parsed.h"
#include "text/grammar.h"

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

// Spells every marker.
std::shared_ptr<const text::Tokenizer> Llama3Like() {
  return LoadTokenizer("tests/golden/text/tokenizers/llama3_like");
}

// The tokenizer of the golden tests, which spells most markers, with those of a format as tokens.
// only: of them, this one.
std::shared_ptr<const text::Tokenizer> TokenizerWith(const OutputFormat& format, std::string_view only = "") {
  std::stringstream read;
  read << std::ifstream(BATON_SOURCE_DIR "/tests/golden/text/tokenizers/qwen_like/tokenizer.json").rdbuf();
  Json json = Json::parse(read.str());
  Json& added = json["added_tokens"];
  int next = added.back()["id"].get<int>() + 1;
  for (const std::string_view marker : Markers(format)) {
    if (!only.empty() && marker != only) continue;
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
  Rig(std::string_view format, bool spelled, std::string_view only = "")
      : name(fmt::format("{}{}", format, spelled ? ", spelled" : "")),
        tokenizer_(!spelled       ? TokenizerWith(Format(format), only)
                   : only.empty() ? QwenLike()
                                  : Llama3Like()),
        markers(Format(format), *tokenizer_),
        vocabulary_(text::GrammarVocabulary::Make(*tokenizer_).value()) {}

  text::GrammarMatcher Compile(const CallShape& shape) const {
    const std::vector<CallableTool> tools = {{"get", ArgumentsGrammar(markers, kNow, 0).value()},
                                             {"get_weather", ArgumentsGrammar(markers, kWeather, 1).value()}};
    const std::string lark = CallGrammar(markers, tools, shape);
    auto matcher = vocabulary_->Compile(lark);
    EXPECT_TRUE(matcher.ok()) << name << ": " << matcher.status() << "\n" << lark;
    return *std::move(matcher);
  }

  text::GrammarMatcher CompileText(const std::string& text) const {
    return vocabulary_->Compile(TextGrammar(markers, text)).value();
  }

  std::vector<TokenId> Tokens(std::string_view text) const { return tokenizer_->Encode(text, false).value(); }

  // True if the grammar takes all of the text, and may end there.
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
    Parser parser(markers,
                  {.names = {"get", "get_weather"}, .type = [](std::string_view, std::string_view key) {
                     return key == "place" ? "string" : key == "days" ? "integer" : "array";
                   }});
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
                           {"deepseek_v31", false}, {"kimi_k2", false},    {"harmony", false},
                           {"qwen3_coder", false},  {"qwen3_coder", true}, {"glm", false},
                           {"glm", true},           {"pythonic", false},   {"pythonic", true}};

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
    {"qwen3_coder",
     {"I look.\n", "<tool_call>\n<function=get_weather>\n",
      "</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n", "</function>\n</tool_call>"}},
    {"glm",
     {"I look.\n", "<tool_call>get_weather\n", "</tool_call>\n<tool_call>get_weather\n", "</tool_call>"}},
    {"pythonic", {"", "[get_weather(", "), get_weather(", ")]"}},
};

// Arguments that obey, and some that do not, as a format writes them.
struct NativeWords {
  std::string_view good, bad;
};
NativeWords NativeArguments(std::string_view format) {
  if (format == "qwen3_coder") {
    return {"<parameter=place>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n",
            "<parameter=place>\nOslo\n</parameter>\n<parameter=days>\n30\n</parameter>\n"};
  }
  if (format == "glm") {
    return {
        "<arg_key>place</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n",
        "<arg_key>place</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>30</arg_value>\n"};
  }
  if (format == "pythonic") return {"place=\"Oslo\", days=3", "place=\"Oslo\", days=30"};
  return {R"({"place": "Oslo", "days": 3})", R"({"place": "Oslo", "days": 30})"};
}
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
    const auto [good, bad] = NativeArguments(one.format);
    const text::GrammarMatcher required = rig.Compile({.required = true});
    const text::GrammarMatcher single = rig.Compile({.required = true, .one_call = true});
    const text::GrammarMatcher automatic = rig.Compile({});
    EXPECT_TRUE(rig.Takes(required.Fork(), Calls(native, good))) << rig.name;
    EXPECT_TRUE(rig.Takes(single.Fork(), Calls(native, good))) << rig.name;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), Calls(native, good))) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), Calls(native, bad))) << rig.name;
    EXPECT_FALSE(rig.Takes(automatic.Fork(), Calls(native, bad))) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), "Yes.")) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), "")) << rig.name;
    const bool channels = rig.markers.format().channels;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), channels ? "<|channel|>final<|message|>Yes." : "Yes."))
        << rig.name;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), std::string(native.text) + Calls(native, good))) << rig.name;
    EXPECT_FALSE(rig.Takes(automatic.Fork(), std::string(native.text) + Calls(native, bad))) << rig.name;
    if (native.next.empty()) continue;
    EXPECT_TRUE(rig.Takes(required.Fork(), Calls(native, good, good))) << rig.name;
    EXPECT_TRUE(rig.Takes(automatic.Fork(), Calls(native, good, good))) << rig.name;
    EXPECT_FALSE(rig.Takes(required.Fork(), Calls(native, good, bad))) << rig.name;
    EXPECT_FALSE(rig.Takes(automatic.Fork(), Calls(native, good, bad))) << rig.name;
    EXPECT_FALSE(rig.Takes(single.Fork(), Calls(native, good, good))) << rig.name;
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

TEST(CallGrammarTest, InChannelsTheAnswerObeysAndThinkingIsFree) {
  const Rig rig("harmony", false);
  const std::string thought = "<|channel|>analysis<|message|>Hm, {\"no\"}.<|end|><|start|>assistant";
  const std::string aside = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant";
  const std::string yes = "<|channel|>final<|message|>yes", maybe = "<|channel|>final<|message|>maybe";
  const std::string obeys = "start: CHOICE\nCHOICE: \"yes\" | \"no\"\n";
  const std::string call = Calls(kNative.at("harmony"), kGood);
  const text::GrammarMatcher text = rig.CompileText(obeys), either = rig.Compile({.text = obeys});
  for (const text::GrammarMatcher* const start : {&text, &either}) {
    EXPECT_TRUE(rig.Takes(start->Fork(), yes));
    EXPECT_TRUE(rig.Takes(start->Fork(), thought + thought + yes));
    EXPECT_FALSE(rig.Takes(start->Fork(), thought + maybe));
    EXPECT_FALSE(rig.Takes(start->Fork(), aside + yes)) << "which would be text, too";
    EXPECT_FALSE(rig.Takes(start->Fork(), thought + yes + "<|end|><|start|>assistant" + maybe));
    EXPECT_FALSE(rig.Takes(start->Fork(), "yes"));
  }
  EXPECT_FALSE(rig.Takes(text.Fork(), thought + call));
  EXPECT_TRUE(rig.Takes(either.Fork(), thought + call));
  EXPECT_FALSE(rig.Takes(either.Fork(), thought + Calls(kNative.at("harmony"), kBad)));
  // Elsewhere a text is the whole answer.
  EXPECT_EQ(TextGrammar(Table("hermes"), obeys), obeys);
}

// The text that a budget of thinking writes in the model's place obeys, whatever the answer has to be.
TEST(CallGrammarTest, ABudgetOfThinkingGoesWithEveryShape) {
  const Rig rig("harmony", false);
  const std::string cut = "<|channel|>analysis<|message|>Hm" + std::string(Format("harmony").think_cut);
  const std::string next = "<|end|><|start|>assistant", call = Calls(kNative.at("harmony"), kGood);
  EXPECT_TRUE(rig.Takes(rig.Compile({}), cut + "Yes."));
  EXPECT_TRUE(rig.Takes(rig.Compile({.text = "start: \"yes\"\n"}), cut + "yes"));
  const text::GrammarMatcher required = rig.Compile({.required = true});
  EXPECT_TRUE(rig.Takes(required.Fork(), cut + next + call));
  EXPECT_FALSE(rig.Takes(required.Fork(), cut + "Yes." + next + call));
  const Parsed read = rig.Read(rig.Tokens(cut + next + call));
  ASSERT_EQ(read.parts.size(), 2u) << "no text between";
  EXPECT_EQ(read.parts[1].kind, PartKind::kToolCall);
}

// Models of this format often leave the opener out: the grammar takes over all the same, but not while they
// think.
TEST(CallGrammarTest, ACallThatBeginsWithItsNameObeys) {
  const auto [good, bad] = NativeArguments("qwen3_coder");
  const std::string open = "<function=get_weather>\n", close = "</function>\n</tool_call>";
  for (const bool spelled : {false, true}) {
    // Its name's opener is text in both: models have no token for it.
    const Rig rig("qwen3_coder", spelled, "<tool_call>");
    for (const bool one_call : {false, true}) {
      const text::GrammarMatcher start = rig.Compile({.one_call = one_call});
      EXPECT_TRUE(rig.Takes(start.Fork(), open + std::string(good) + close)) << rig.name;
      EXPECT_TRUE(rig.Takes(start.Fork(), "I look.\n" + open + std::string(good) + close)) << rig.name;
      EXPECT_FALSE(rig.Takes(start.Fork(), "I look.\n" + open + std::string(bad) + close)) << rig.name;
      EXPECT_FALSE(rig.Takes(start.Fork(), "<function=other>\n")) << rig.name;
      EXPECT_TRUE(rig.Takes(start.Fork(), "A <b> and a </function>.")) << rig.name;
      EXPECT_TRUE(rig.Takes(start.Fork(), Calls(kNative.at("qwen3_coder"), good))) << rig.name;
      const std::string two =
          Calls(kNative.at("qwen3_coder"), good) + "\n" + open + std::string(good) + close;
      EXPECT_EQ(rig.Takes(start.Fork(), two), !one_call) << rig.name;
    }
    EXPECT_FALSE(TellsCallsFromText(rig.markers));
  }
  const std::string thought = "A <function=get_weather>\n</function>\n</tool_call> it is.";
  EXPECT_EQ(Parse("qwen3_coder", thought, {.thinking = true}).parts,
            std::vector<Part>({{.kind = PartKind::kThinking, .text = thought, .complete = false}}));
}

TEST(CallGrammarTest, SaysWhichFormatsItCanWrite) {
  for (const OutputFormat& format : Formats()) {
    const bool calls = format.layout != Layout::kNone;
    const auto with = TokenizerWith(format);
    EXPECT_EQ(CanConstrainCalls(MarkerTable(format, *with), false), calls) << format.name;
    const bool spelled =
        calls && format.name != "harmony" && (format.section_open.empty() || format.call_open.empty());
    EXPECT_EQ(CanConstrainCalls(MarkerTable(format, *QwenLike()), false), spelled) << format.name;
  }
  // Inside thinking, a call that is spelled could not be told from text in time.
  EXPECT_TRUE(CanConstrainCalls(MarkerTable(Format("hermes"), *TokenizerWith(Format("hermes"))), true));
  EXPECT_FALSE(CanConstrainCalls(MarkerTable(Format("hermes"), *QwenLike()), true));
}

TEST(CallGrammarTest, ArgumentsAreAnObject) {
  const auto arguments = [](std::string_view schema) { return ArgumentsGrammar(Table("hermes"), schema, 0); };
  EXPECT_TRUE(arguments("").ok());
  EXPECT_THAT(*arguments(R"({"properties": {"type": {"description": "?"}}})"),
              testing::AllOf(HasSubstr(R"("type":"object")"), testing::Not(HasSubstr("?\""))));
  EXPECT_THAT(*arguments(R"({"type": ["null", "object"]})"), HasSubstr(R"("type":"object")"));
  EXPECT_THAT(arguments(R"({"type": "string"})").status().message(), HasSubstr("\"string\""));
  EXPECT_THAT(arguments("[]").status().message(), HasSubstr("object"));
  EXPECT_TRUE(absl::IsInvalidArgument(arguments("{").status()));
}

}  // namespace
}  // namespace baton::output
