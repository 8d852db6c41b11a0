#include "text/output/lexer.h"

#include <gmock/gmock.h>

#include "tests/unit/text/output/parsed.h"

namespace baton::output {
namespace {

using ::testing::ElementsAre;

const TokenId kWord{100};

TEST(OutputFormatTest, NoMarkerBeginsAnother) {
  for (const OutputFormat& format : Formats()) {
    const auto markers = Markers(format);
    for (const std::string_view a : markers) {
      for (const std::string_view b : markers) {
        EXPECT_TRUE(a == b || !b.starts_with(a)) << format.name << ": " << a << " and " << b;
      }
    }
  }
}

TEST(LexerTest, AMarkerThatIsATokenIsThatTokenAlone) {
  Lexer lexer(Table("hermes"));
  const TokenId open = QwenLike()->Encode("<tool_call>", false)->at(0);
  std::vector<Lexeme> out;
  lexer.Push(kWord, "a<tool_call>b", &out);
  lexer.Push(open, "<tool_call>", &out);
  lexer.Push(kWord, "c", &out);
  lexer.Push(open, "", &out);  // a special token has no text
  EXPECT_THAT(out, ElementsAre(Lexeme{false, "a<tool_call>b"}, Lexeme{true, "<tool_call>"},
                               Lexeme{false, "c"}, Lexeme{true, "<tool_call>"}));
}

TEST(LexerTest, TextBeforeATokenComesFirst) {
  Lexer lexer(Table("hermes"));
  const TokenId open = QwenLike()->Encode("<tool_call>", false)->at(0);
  std::vector<Lexeme> out;
  lexer.Push(kWord, "a<thi", &out);  // begins <think>, which this tokenizer spells
  EXPECT_THAT(out, ElementsAre(Lexeme{false, "a"}));
  lexer.Push(open, "\uFFFD<tool_call>", &out);  // the detokenizer completed what it had
  EXPECT_THAT(out, ElementsAre(Lexeme{false, "a<thi\uFFFD"}, Lexeme{true, "<tool_call>"}));
}

TEST(LexerTest, HoldsBackLessThanTheLongestMarker) {
  std::mt19937_64 random(7);
  for (const OutputFormat& format : Formats()) {
    size_t longest = 0;
    std::string soup;
    for (const std::string_view marker : Markers(format)) {
      longest = std::max(longest, marker.size());
      for (int i = 0; i < 20; ++i) soup += marker.substr(0, random() % (marker.size() + 1));
    }
    Lexer lexer(Table(format.name));
    std::vector<Lexeme> out;
    size_t given = 0;
    for (size_t i = 0; i < soup.size(); ++i) {
      lexer.Push(kWord, soup.substr(i, 1), &out);
      given = 0;
      for (const Lexeme& lexeme : out) given += lexeme.text.size();
      EXPECT_EQ(given + lexer.held(), i + 1);
      EXPECT_LT(lexer.held(), std::max<size_t>(longest, 1));
    }
    lexer.Finish("", &out);
    std::string all;
    for (const Lexeme& lexeme : out) all += lexeme.text;
    EXPECT_EQ(all, soup);
  }
}

}  // namespace
}  // namespace baton::output
