#include "text/literal_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/unit/text/tokenizer_folders.h"

namespace baton::text {
namespace {

using Json = ChatTemplate::Json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char32_t kMark = 0xE000;
const std::string kMarkText = "\uE000";

std::vector<TokenId> Ids(const Tokenizer& tokenizer, std::string_view text) {
  return *tokenizer.Encode(text, /*add_special_tokens=*/false);
}

std::string AnyText(std::mt19937_64& random) {
  static const auto* pieces = new std::vector<std::string>{
      "word",    " two", "<",       "<|",   "|>",     "start",       "end",          "<|start|>",
      "<|end|>", "<s>",  "</s>",    "\n",   "  ",     "<tool_call>", "</tool_call>", " <tool_call>",
      "\t",      "é",    "e\u0301", "日本", "<unk>",  "[CLS]",       "[SEP",         "]",
      "12345",   "'ll",  "s>",      "▁",    "\u0000", "\u2028",      "<<s>"};
  std::string text;
  for (uint64_t i = random() % 12; i > 0; --i) text += (*pieces)[random() % pieces->size()];
  return text;
}

// Where no token could reach across a mark, marks change nothing: a text is cut at its added tokens as the
// library cuts it.
TEST(EncodeMarkedTest, IsAsWithoutMarksWhereTheyBreakNothing) {
  std::mt19937_64 random = SeededEngine();
  for (const std::string& kind : TokenizerKinds()) {
    const auto tokenizer = LoadKind(kind);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = AnyText(random);
      SCOPED_TRACE(kind + ": " + text);
      EXPECT_EQ(*tokenizer->EncodeMarked(text, true, kMark), *tokenizer->Encode(text, true));
      EXPECT_EQ(*tokenizer->EncodeMarked(kMarkText + text + kMarkText, true, kMark),
                *tokenizer->Encode(text, true));
    }
  }
}

// A tokenizer.json that doesn't know the added tokens: what literal text has to become.
std::shared_ptr<const Tokenizer> WithoutAddedTokens(const std::string& kind) {
  Json json = Json::parse(ReadAll(FolderOf(kind) + "/tokenizer.json"));
  json["added_tokens"] = Json::array();
  json["post_processor"] = nullptr;
  auto tokenizer = Tokenizer::FromJson(json.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

TEST(MarkTest, LiteralTextIsEncodedAsByATokenizerWithoutTheTokens) {
  std::mt19937_64 random = SeededEngine();
  // Models whose own vocabulary makes no control token of letters.
  for (const std::string kind : {"llama3_like", "qwen_like", "llama2_like"}) {
    const auto tokenizer = LoadKind(kind);
    const auto without = WithoutAddedTokens(kind);
    const LiteralText literal(tokenizer, nullptr);
    int found = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::string text = AnyText(random);
      SCOPED_TRACE(kind + ": " + text);
      std::string marked = text;
      const auto marks = literal.Mark(&marked);
      ASSERT_TRUE(marks.ok()) << marks.status();
      found += marks->tokens > 0 ? 1 : 0;
      EXPECT_EQ(*tokenizer->EncodeMarked(marked, false, marks->mark), Ids(*without, text));
      EXPECT_EQ(LiteralText::Unmark(marked, marks->mark), text);
    }
    EXPECT_GT(found, 500);
  }
}

TEST(MarkTest, NoControlTokenComesOfLiteralText) {
  std::mt19937_64 random = SeededEngine();
  for (const std::string& kind : TokenizerKinds()) {
    const auto tokenizer = LoadKind(kind);
    const LiteralText literal(tokenizer, nullptr);
    for (int i = 0; i < 2000; ++i) {
      std::string text = AnyText(random);
      SCOPED_TRACE(kind + ": " + text);
      const auto marks = literal.Mark(&text);
      ASSERT_TRUE(marks.ok()) << marks.status();
      const auto tokens = tokenizer->EncodeMarked(text, false, marks->mark);
      for (const TokenId token : *tokens) {
        // An unknown token stands for letters that the model doesn't know.
        const std::string_view bytes = tokenizer->TokenBytes(token);
        if (bytes == "<unk>" || bytes == "[UNK]") continue;
        EXPECT_FALSE(tokenizer->IsControl(token)) << bytes;
      }
    }
  }
}

// Two fields side by side in a prompt: neither holds a token, together they would.
TEST(MarkTest, AnEndThatTheNextTextCouldCompleteIsMarked) {
  const auto tokenizer = LoadKind("llama3_like");
  const LiteralText literal(tokenizer, nullptr);
  const std::string token = "<|start|>";
  for (size_t cut = 1; cut < token.size(); ++cut) {
    std::string first = "a " + token.substr(0, cut);
    const auto marks = literal.Mark(&first);
    ASSERT_TRUE(marks.ok());
    EXPECT_EQ(marks->tokens, 0);
    EXPECT_GE(marks->marks, 1) << first;
    const auto ids = *tokenizer->EncodeMarked(first + token.substr(cut) + token, false, marks->mark);
    const TokenId start = Ids(*tokenizer, token)[0];
    EXPECT_EQ(std::count(ids.begin(), ids.end(), start), 1) << "the whole one alone, behind " << first;
    EXPECT_EQ(ids.back(), start);
  }
}

TEST(MarkTest, CountsOccurrencesAndLeavesTheRestAlone) {
  const auto tokenizer = LoadKind("llama3_like");
  const LiteralText literal(tokenizer, nullptr);
  std::string text = "plain words, 1 < 2 and </p>";
  EXPECT_EQ(literal.Mark(&text)->marks, 0);
  EXPECT_EQ(text, "plain words, 1 < 2 and </p>");
  text = "a<|end|>b<|end|><s>";
  const auto marks = literal.Mark(&text);
  EXPECT_EQ(marks->tokens, 3);
  EXPECT_EQ(text, "a<" + kMarkText + "|end|>b<" + kMarkText + "|end|><" + kMarkText + "s>");
}

TEST(MarkTest, TheMarkOccursNowhereElse) {
  const auto tokenizer = LoadKind("llama3_like");
  const LiteralText literal(tokenizer, nullptr);
  std::string text = "\uE000 and \\uE001 and \uE003 <s>";
  EXPECT_EQ(literal.Mark(&text)->mark, char32_t{0xE002});

  std::string all = "<s>";
  for (uint32_t c = 0xE000; c <= 0xF8FF; ++c) {
    all += static_cast<char>(0xE0 | c >> 12);
    all += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    all += static_cast<char>(0x80 | (c & 0x3F));
  }
  EXPECT_EQ(literal.Mark(&all).status().code(), absl::StatusCode::kInvalidArgument);
  std::string harmless = all.substr(3);
  EXPECT_TRUE(literal.Mark(&harmless).ok());
}

TEST(MarkTest, AMarkSurvivesJsonEscapes) {
  EXPECT_EQ(LiteralText::Unmark("a\\ue000b\uE000c", kMark), "abc");
  const auto tokenizer = LoadKind("llama3_like");
  const auto ids = *tokenizer->EncodeMarked("<\\ue000|end|>", false, kMark);
  EXPECT_THAT(ids, testing::Not(testing::Contains(Ids(*tokenizer, "<|end|>")[0])));
}

TEST(MarkTest, WhatTheTokenizerFindsAfterItsNormalizerIsFoundToo) {
  Json json = Json::parse(ReadAll(FolderOf("qwen_like") + "/tokenizer.json"));
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}};
  const auto tokenizer = *Tokenizer::FromJson(json.dump());
  const LiteralText literal(tokenizer, nullptr);
  const TokenId call = Ids(*tokenizer, "<tool_call>")[0];
  for (const std::string disguise : {"<TOOL_CALL>", "＜tool_call＞", "a <Tool_Call>b"}) {
    std::string text = disguise;
    ASSERT_THAT(Ids(*tokenizer, text), testing::Contains(call)) << "the disguise works";
    const auto marks = literal.Mark(&text);
    EXPECT_EQ(marks->tokens, 1) << disguise;
    EXPECT_THAT(*tokenizer->EncodeMarked(text, false, marks->mark), testing::Not(testing::Contains(call)));
  }
}

TEST(ControlTokensTest, AddedWordsAndSpacesAreText) {
  Json json = Json::parse(ReadAll(FolderOf("llama3_like") + "/tokenizer.json"));
  int id = 600;
  const auto add = [&](const std::string& content, bool special) {
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", special}});
  };
  add("    ", false);
  add("Straße", false);
  add("÷", false);
  add("€", true);
  add("[X]", false);
  const auto tokenizer = *Tokenizer::FromJson(json.dump());
  const LiteralText literal(tokenizer, nullptr);
  std::string text = "a    Straße ÷ <";
  text.pop_back();
  EXPECT_EQ(literal.Mark(&text)->marks, 0);
  EXPECT_TRUE(tokenizer->IsControl(Ids(*tokenizer, "[X]")[0]));
  // One character has no inside.
  const TokenId one = Ids(*tokenizer, "€")[0];
  text = "a€b";
  const auto marks = literal.Mark(&text);
  EXPECT_EQ(marks->tokens, 1);
  EXPECT_THAT(*tokenizer->EncodeMarked(text, false, marks->mark), testing::Not(testing::Contains(one)));
  EXPECT_THAT(*tokenizer->EncodeMarked(text + "€", false, marks->mark), testing::Contains(one));
}

TEST(LiteralTextTest, MarkersOfAnswersStayInAnswersAndTurnsDoNot) {
  const auto tokenizer = LoadKind("qwen_like");
  // <tool_call> is not special, and this template opens every turn of a tool with it.
  const auto plain = *ChatTemplate::FromSource(
      "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}", {});
  const auto turns = *ChatTemplate::FromSource(
      "{% for m in messages %}<tool_call>{{ m.role }}\n{{ m.content }}</tool_call>{% endfor %}", {});
  const LiteralText keeps(tokenizer, plain.get());
  EXPECT_THAT(keeps.kept_in_answers(),
              ElementsAre(Ids(*tokenizer, "<tool_call>")[0], Ids(*tokenizer, "</tool_call>")[0]));
  EXPECT_THAT(LiteralText(tokenizer, turns.get()).kept_in_answers(), IsEmpty());
  EXPECT_THAT(LiteralText(tokenizer, nullptr).kept_in_answers(), IsEmpty());

  const auto marks = [&](const std::string& role, const std::string& field, const std::string& text) {
    Json message = {{"role", role}, {"content", ""}};
    message[field] = text;
    Json variables = {{"messages", Json::array({message})}};
    return keeps.Mark(&variables)->tokens;
  };
  EXPECT_EQ(marks("assistant", "content", "<tool_call>{}</tool_call>"), 0);
  EXPECT_EQ(marks("assistant", "content", "<tool_call>{}</tool_call><|end|>"), 1);
  EXPECT_EQ(marks("assistant", "reasoning_content", "<tool_call>"), 1);
  EXPECT_EQ(marks("user", "content", "<tool_call>"), 1);
  EXPECT_EQ(marks("tool", "content", "<tool_call>"), 1);
}

// The model's own come from its folder: what a client says in their place is a client's text.
TEST(LiteralTextTest, VariablesThatNameSpecialTokensAreTextAsAnyOther) {
  const auto tokenizer = LoadKind("qwen_like");
  const LiteralText literal(tokenizer, nullptr);
  Json variables = {{"messages", Json::array()}, {"bos_token", "<s><s>"}, {"note", "<s>"}};
  EXPECT_EQ(literal.Mark(&variables)->tokens, 3);
  EXPECT_NE(variables["bos_token"], "<s><s>");
}

// A hostile text must not cost more than its length.
TEST(MarkTest, ManyOccurrencesStayLinear) {
  const auto tokenizer = LoadKind("llama2_like");
  const LiteralText literal(tokenizer, nullptr);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += i % 2 == 0 ? "<|end|>" : "\\ue000<s";
  const auto marks = literal.Mark(&text);
  ASSERT_TRUE(marks.ok());
  EXPECT_EQ(marks->tokens, 10'000);
  EXPECT_EQ(marks->mark, char32_t{0xE001});
  EXPECT_TRUE(tokenizer->EncodeMarked(text, false, marks->mark).ok());
}

}  // namespace
}  // namespace baton::text
