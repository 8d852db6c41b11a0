#include "common/base/quote.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(QuotedTest, ShortTextStandsWhole) {
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("gpt-9"), "\"gpt-9\"");
  EXPECT_EQ(Quoted(std::string(100, 'x')), "\"" + std::string(100, 'x') + "\"");
}

TEST(QuotedTest, LongTextIsCutAndItsLengthSaid) {
  EXPECT_EQ(Quoted(std::string(101, 'x')), "\"" + std::string(100, 'x') + "\"... (101 bytes)");
  EXPECT_EQ(Quoted("abcdef", 3), "\"abc\"... (6 bytes)");
  EXPECT_EQ(Shortened("abcdef", 3), "abc... (6 bytes)");
  EXPECT_EQ(Shortened("abcdef", 6), "abcdef");
}

TEST(QuotedTest, CharactersStayWhole) {
  EXPECT_EQ(Quoted("ab\u00e9d", 3), "\"ab\"... (5 bytes)");
  EXPECT_EQ(Quoted("ab\u00e9d", 4), "\"ab\u00e9\"... (5 bytes)");
  EXPECT_EQ(Quoted("\U0001F680\U0001F680", 7), "\"\U0001F680\"... (8 bytes)");
  EXPECT_EQ(Quoted(std::string(200, '\x80')), "\"\"... (200 bytes)") << "no character to begin with";
}

TEST(QuotedTest, StaysOnOneLine) { EXPECT_EQ(Quoted("a\nb\r\x1b[2Jc\x7f"), "\"a b  [2Jc \""); }

}  // namespace
}  // namespace baton
