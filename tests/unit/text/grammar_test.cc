#include "text/grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include "nlohmann/json.hpp"
#include "tests/unit/text/tokenizer_folders.h"

namespace baton::text {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

struct Vocabulary {
  explicit Vocabulary(const std::string& kind) : name(kind), tokenizer(LoadKind(kind)) {
    auto made = GrammarVocabulary::Make(*tokenizer);
    EXPECT_TRUE(made.ok()) << made.status();
    grammars = *made;
  }
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const GrammarVocabulary> grammars;

  GrammarMatcher Compile(std::string_view lark) const {
    auto matcher = grammars->Compile(lark);
    EXPECT_TRUE(matcher.ok()) << matcher.status();
    return *std::move(matcher);
  }

  TokenMask Mask(GrammarMatcher& matcher, bool* may_end = nullptr) const {
    TokenMask mask(grammars->mask_words());
    const auto ends = matcher.Mask(mask);
    EXPECT_TRUE(ends.ok()) << name << ": " << ends.status();
    if (may_end != nullptr) *may_end = *ends;
    return mask;
  }

  // Tokens of an answer that obeys the grammar: a random walk. It ends where it may, with even odds, and
  // after `most` tokens.
  std::vector<TokenId> Walk(GrammarMatcher matcher, std::mt19937_64& random, int most, bool* complete) const {
    std::vector<TokenId> tokens;
    *complete = false;
    while (std::ssize(tokens) < most) {
      bool may_end = false;
      const TokenMask mask = Mask(matcher, &may_end);
      std::vector<TokenId> allowed;
      for (int32_t id = 0; id < tokenizer->vocabulary(); ++id) {
        if (Allows(mask, TokenId(id))) allowed.emplace_back(id);
      }
      EXPECT_TRUE(may_end || !allowed.empty());
      if (allowed.empty() || (may_end && random() % 2 == 0)) {
        *complete = may_end;
        break;
      }
      tokens.push_back(allowed[random() % allowed.size()]);
      EXPECT_TRUE(matcher.Push(tokens.back()).ok());
    }
    return tokens;
  }

  std::string Bytes(const std::vector<TokenId>& tokens) const {
    std::string text;
    for (const TokenId token : tokens) text += tokenizer->TokenBytes(token);
    return text;
  }
};

// Kinds whose text is the text of their tokens in a row.
constexpr const char* kKinds[] = {"llama3_like", "qwen_like", "llama2_like", "metaspace_like"};

TEST(GrammarTest, EveryWalkObeysARegularExpression) {
  for (const char* kind : {"llama3_like", "qwen_like", "llama2_like"}) {
    const Vocabulary vocabulary(kind);
    const GrammarMatcher start = vocabulary.Compile("start: /(ab|[0-9]{2,4}-)+x?/");
    std::mt19937_64 random(7);
    int ended = 0;
    for (int walk = 0; walk < 50; ++walk) {
      bool complete = false;
      const std::string text = vocabulary.Bytes(vocabulary.Walk(start.Fork(), random, 60, &complete));
      if (!complete) continue;
      ++ended;
      EXPECT_THAT(text, testing::MatchesRegex("(ab|[0-9]{2,4}-)+x?")) << kind;
    }
    EXPECT_GT(ended, 40) << kind;
  }
}

TEST(GrammarTest, EveryCompleteWalkOfASchemaIsJsonThatObeysIt) {
  const Vocabulary vocabulary("qwen_like");
  const GrammarMatcher start = vocabulary.Compile(
      R"(start: %json {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 70},
      "kind": {"enum": ["a", "b c"]}}, "required": ["n", "kind"], "additionalProperties": false,
      "x-guidance": {"whitespace_pattern": "[ \\n]{1,2}"}})");
  std::mt19937_64 random(11);
  int ended = 0;
  for (int walk = 0; walk < 50; ++walk) {
    bool complete = false;
    const std::string text = vocabulary.Bytes(vocabulary.Walk(start.Fork(), random, 200, &complete));
    if (!complete) continue;
    ++ended;
    const auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(value.is_object() && value.size() == 2) << text;
    EXPECT_TRUE(value["n"] >= 3 && value["n"] <= 70) << text;
    EXPECT_TRUE(value["kind"] == "a" || value["kind"] == "b c") << text;
  }
  EXPECT_GT(ended, 40);
}

TEST(GrammarTest, TextNeverBecomesAControlToken) {
  for (const char* kind : kKinds) {
    const Vocabulary vocabulary(kind);
    GrammarMatcher anything = vocabulary.Compile("start: /(.|\\n)*/");
    const TokenMask mask = vocabulary.Mask(anything);
    int controls = 0, others = 0;
    for (int32_t id = 0; id < vocabulary.tokenizer->vocabulary(); ++id) {
      if (vocabulary.tokenizer->IsControl(TokenId(id))) {
        ++controls;
        EXPECT_FALSE(Allows(mask, TokenId(id))) << kind << " " << id;
        GrammarMatcher named = vocabulary.Compile(fmt::format("start: \"a\" | <[{}]>", id));
        EXPECT_TRUE(Allows(vocabulary.Mask(named), TokenId(id))) << kind << " " << id;
        EXPECT_TRUE(named.Push(TokenId(id)).ok());
      } else {
        others += Allows(mask, TokenId(id)) ? 1 : 0;
      }
    }
    EXPECT_GT(controls, 0) << kind;
    EXPECT_GT(others, 100) << kind;
  }
}

TEST(GrammarTest, AReplayOfTheTokensStandsAtTheSamePlace) {
  const Vocabulary vocabulary("llama3_like");
  const GrammarMatcher start = vocabulary.Compile(
      R"(start: %json {"type": "object", "properties": {"s": {"type": "string", "minLength": 4}}})");
  std::mt19937_64 random(3);
  bool complete = false;
  const std::vector<TokenId> tokens = vocabulary.Walk(start.Fork(), random, 40, &complete);
  ASSERT_GT(tokens.size(), 3u);
  GrammarMatcher live = start.Fork();
  for (size_t size = 0; size < tokens.size(); ++size) {
    GrammarMatcher replayed = vocabulary.Compile(
        R"(start: %json {"type": "object", "properties": {"s": {"type": "string", "minLength": 4}}})");
    for (size_t i = 0; i < size; ++i) ASSERT_TRUE(replayed.Push(tokens[i]).ok());
    bool ends = false, replayed_ends = false;
    EXPECT_EQ(vocabulary.Mask(live, &ends), vocabulary.Mask(replayed, &replayed_ends)) << size;
    EXPECT_EQ(ends, replayed_ends);
    ASSERT_TRUE(live.Push(tokens[size]).ok());
  }
}

TEST(GrammarTest, ForksShareNothing) {
  const Vocabulary vocabulary("qwen_like");
  const TokenId a = vocabulary.tokenizer->Encode("a", false)->front();
  const TokenId b = vocabulary.tokenizer->Encode("b", false)->front();
  GrammarMatcher one = vocabulary.Compile("start: \"aa\" | \"ab\"");
  ASSERT_TRUE(one.Push(a).ok());
  GrammarMatcher other = one.Fork();
  ASSERT_TRUE(one.Push(b).ok());
  EXPECT_TRUE(Allows(vocabulary.Mask(other), a));
  bool ends = false;
  const TokenMask none = vocabulary.Mask(one, &ends);
  EXPECT_TRUE(ends);
  EXPECT_EQ(none, TokenMask(vocabulary.grammars->mask_words()));
}

TEST(GrammarTest, RefusesATokenThatTheMaskForbids) {
  const Vocabulary vocabulary("qwen_like");
  const TokenId a = vocabulary.tokenizer->Encode("a", false)->front();
  const TokenId z = vocabulary.tokenizer->Encode("z", false)->front();
  GrammarMatcher matcher = vocabulary.Compile("start: \"a\"");
  EXPECT_TRUE(absl::IsInvalidArgument(matcher.Fork().Push(z)));
  EXPECT_TRUE(absl::IsInvalidArgument(matcher.Fork().Push(TokenId(1 << 30))));
  ASSERT_TRUE(matcher.Push(a).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(matcher.Push(a)));
}

// A vocabulary without "7": what would need one ends there, and says so.
TEST(GrammarTest, SaysThatNoTokenContinuesIt) {
  const Vocabulary vocabulary("metaspace_like");
  const auto matcher = vocabulary.grammars->Compile("start: \"777\"");
  EXPECT_TRUE(absl::IsInvalidArgument(matcher.status()));
  EXPECT_THAT(matcher.status().message(), HasSubstr("no token of this model"));
}

TEST(GrammarTest, NamesWhatIsWrong) {
  const Vocabulary vocabulary("qwen_like");
  const auto said = [&](std::string_view lark) {
    const auto matcher = vocabulary.grammars->Compile(lark);
    EXPECT_TRUE(absl::IsInvalidArgument(matcher.status())) << lark;
    return std::string(matcher.status().message());
  };
  EXPECT_THAT(said("start: \"a\" other\nother: \"b\" | missing\n"), HasSubstr("missing"));
  EXPECT_THAT(said("start: \"a\"\nb = 3\n"), HasSubstr("2("));
  EXPECT_THAT(said(R"(start: %json {"type": "object", "dependentSchemas": {}})"),
              HasSubstr("dependentSchemas"));
  EXPECT_THAT(said(R"(start: %json {"type": "string", "pattern": "(?=a)b"})"), HasSubstr("look"));
  EXPECT_THAT(said(R"(start: %json {"$ref": "https://example.com/schema"})"), HasSubstr("example.com"));
  // Words for who calls the library would be of no use to clients.
  EXPECT_THAT(said(R"(start: %json {"oneOf": [{"minimum": 1}, {"maximum": 2}]})"),
              AllOf(HasSubstr("oneOf: "), HasSubstr("use anyOf"), Not(HasSubstr("coerce"))));
  EXPECT_THAT(said("start: /[/"), HasSubstr("start: /[/"));
  EXPECT_THAT(said(""), HasSubstr("start"));
  EXPECT_THAT(said("start: <[99999999]>"), HasSubstr("99999999"));
}

TEST(GrammarTest, RefusesATokenizerWhoseTextIsNotThatOfItsTokens) {
  const auto made = GrammarVocabulary::Make(*LoadKind("wordpiece_like"));
  EXPECT_TRUE(absl::IsInvalidArgument(made.status()));
}

std::string Repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

double ProcessCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Each is refused or compiled within a bound; none takes the process down.
TEST(GrammarTest, HostileGrammarsEndInTime) {
  const Vocabulary vocabulary("qwen_like");
  std::string any_of_all = R"({"allOf": [)";
  for (int i = 0; i < 14; ++i) {
    any_of_all += fmt::format(R"({}{{"anyOf": [{{"properties": {{"a{}": {{"const": 1}}}}}},
                              {{"properties": {{"b{}": {{"const": 2}}}}}}]}})",
                              i == 0 ? "" : ",", i, i);
  }
  any_of_all += "]}";
  std::string doubling = R"({"$defs": {"d0": {"type": "string"})";
  for (int i = 1; i < 30; ++i) {
    doubling += fmt::format(
        R"(, "d{}": {{"type": "array", "prefixItems": [{{"$ref": "#/$defs/d{}"}}, {{"$ref": "#/$defs/d{}"}}]}})",
        i, i - 1, i - 1);
  }
  doubling += R"(}, "$ref": "#/$defs/d29"})";
  std::string wide = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 500; ++i) wide += fmt::format(R"({}"property_{}": {{}})", i == 0 ? "" : ",", i);
  wide += "}}";
  std::string chain = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < 1400; ++i) {
    chain += fmt::format(R"({}"{}":{{"items":{{"$ref":"#/$defs/{}"}}}})", i == 0 ? "" : ",", i, i + 1);
  }
  chain += R"(,"1400": {}}})";
  std::string rules = "start: r0\n";
  for (int i = 0; i < 3500; ++i) rules += fmt::format("r{}: \"a\" r{}\n", i, i + 1);
  rules += "r3500: \"a\"\n";
  const std::vector<std::string> hostile = {
      "start: /" + Repeated("(", 20000) + "a" + Repeated(")", 20000) + "/",
      "start: " + Repeated("(", 20000) + "\"a\"" + Repeated(")", 20000),
      "start: %json " + Repeated("{\"items\":", 5000) + "{}" + Repeated("}", 5000),
      "start: /((((a{1,100}){1,100}){1,100}){1,100})/",
      "start: /(a|b)*a(a|b){60}/",
      "start: /" + Repeated("a?", 20000) + "/",
      "start: /(.*a){40}.*/",
      "start: ((((\"a\"{1,100}){1,100}){1,100}){1,100})",
      "start: /" + Repeated("a?", 2000) + "/",
      "start: %json {\"type\": \"string\", \"minLength\": 100000, \"maxLength\": 1000000}",
      "start: %json {\"type\": \"array\", \"minItems\": 1000000, \"items\": {\"type\": \"string\"}}",
      "start: %json {\"type\": \"integer\", \"multipleOf\": 982451653}",
      "start: %json {\"type\": \"string\", \"pattern\": \"^(([a-z])+.)+[A-Z]([a-z])+$\", \"maxLength\": "
      "5000}",
      "start: %json " + any_of_all,
      "start: %json " + doubling,
      "start: %json " + wide,
      "start: %json " + chain,
      rules,
      "start: a\na: a a | b\nb: a b | \"x\"",
      Repeated("start: start\n", 40000),
      std::string(1 << 20, 'a'),
      "start: ~/(.*a){200}.*/",
  };
  for (size_t i = 0; i < hostile.size(); ++i) {
    // Compiling has a thread of its own, and no other runs here: the process's time is its time.
    const double begin = ProcessCpuSeconds();
    const auto matcher = vocabulary.grammars->Compile(hostile[i]);
    const double took = ProcessCpuSeconds() - begin;
    // Each takes less than 200 ms; where other threads share a core's caches and units, more.
    EXPECT_LT(took, 0.5) << "grammar " << i << ": " << matcher.status();
    if (getenv("BATON_SHOW_TIMES") != nullptr) {
      printf("%zu: %.0f ms %s\n", i, took * 1e3, matcher.status().ToString().substr(0, 150).c_str());
    }
  }
}

// A pattern that counts words, under a bound of their length: what is too much work says so, and a text that
// obeys is taken the same whether or not it was asked for masks in between.
TEST(GrammarTest, WorkThatIsTooMuchIsNoDisobedience) {
  const Vocabulary vocabulary("qwen_like");
  std::string text = "\"";
  for (int i = 0; i < 60; ++i) text += fmt::format("{}word{}", i == 0 ? "" : " ", i);
  const auto tokens = vocabulary.tokenizer->Encode(text + "\"", false);
  int taken = 0;
  int refused = 0;
  for (const int most : {480, 500, 2000}) {
    const GrammarMatcher start = vocabulary.Compile(fmt::format(
        R"(start: %json {{"type": "string", "pattern": "^([^ ]+[ ]+){{0,99}}[^ ]+$", "maxLength": {}}})",
        most));
    absl::Status with, without;
    GrammarMatcher asked = start.Fork(), unasked = start.Fork();
    TokenMask mask(vocabulary.grammars->mask_words());
    for (const TokenId token : *tokens) {
      if (with.ok()) with = asked.Mask(mask).status();
      if (with.ok()) with = asked.Push(token);
      if (without.ok()) without = unasked.Push(token);
    }
    EXPECT_EQ(with, without);
    ++(with.ok() ? taken : refused);
    if (with.ok()) continue;
    EXPECT_THAT(with.message(), HasSubstr("it takes more work than is allowed: fewer"));
  }
  EXPECT_GE(taken, 1);
  EXPECT_GE(refused, 1);
}

}  // namespace
}  // namespace baton::text
