#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include "tests/unit/text/tokenizer_folders.h"

namespace baton::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> match;
  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << testing::PrintToString(outcome.text) << " / " << outcome.match.value_or("(none)");
}

// The rule itself, on the whole text: the first end at which a stop string stands, and the longest of those
// there.
Outcome Naive(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) &&
          (best == nullptr || stop.size() > best->size())) {
        best = &stop;
      }
    }
    if (best != nullptr) return {text.substr(0, end - best->size()), *best};
  }
  return {text, std::nullopt};
}

// The longest end of `text` that begins a stop string.
size_t MustHold(const std::string& text, const std::vector<std::string>& stops) {
  size_t hold = 0;
  for (const std::string& stop : stops) {
    for (size_t size = 1; size < stop.size() && size <= text.size(); ++size) {
      if (text.ends_with(stop.substr(0, size))) hold = std::max(hold, size);
    }
  }
  return hold;
}

TEST(StopMatcherTest, FindsWhatASearchOfTheWholeTextFinds) {
  std::mt19937_64 engine = SeededEngine();
  // Few letters, so that borders and overlaps are common; one of them takes three bytes.
  const std::vector<std::string> letters = {"a", "b", "ab", "€"};
  const auto draw = [&](size_t longest) {
    std::string text;
    for (size_t n = 1 + Below(engine, longest); n > 0; --n) text += letters[Below(engine, letters.size())];
    return text;
  };
  int matched = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = Below(engine, 4); n > 0; --n) stops.push_back(draw(5));
    const std::string text = draw(16);
    const Outcome expected = Naive(text, stops);
    matched += expected.match.has_value();

    StopMatcher matcher(stops);
    Outcome outcome;
    std::string pushed;
    for (size_t at = 0; at < text.size();) {
      // Pieces end where characters do, as a detokenizer's do; some are empty.
      size_t size = Below(engine, 6);
      while (at + size < text.size() && (text[at + size] & 0xC0) == 0x80) ++size;
      const std::string piece = text.substr(at, size);
      at += piece.size();
      pushed += piece;
      const StopMatcher::Result result = matcher.Push(piece);
      outcome.text += result.text;
      outcome.match = result.match;
      if (result.match.has_value()) break;
      // Nothing is held back without need.
      ASSERT_EQ(outcome.text.size(), pushed.size() - MustHold(pushed, stops));
      ASSERT_TRUE(result.text.empty() || (result.text[0] & 0xC0) != 0x80);
    }
    outcome.text += matcher.Flush();
    ASSERT_EQ(outcome, expected) << testing::PrintToString(text) << " " << testing::PrintToString(stops);
  }
  EXPECT_GT(matched, 1000);
}

TEST(StopMatcherTest, MatchesAcrossPieces) {
  StopMatcher matcher({"</answer>"});
  EXPECT_EQ(matcher.Push("42</an").text, "42");
  EXPECT_EQ(matcher.Push("s").text, "");
  const StopMatcher::Result result = matcher.Push("wer> and more");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.match, "</answer>");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, ReleasesAFalseStart) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.Push("one\n\nUs").text, "one");
  EXPECT_EQ(matcher.Push("e it").text, "\n\nUse it");
}

TEST(StopMatcherTest, TheFirstToCompleteWins) {
  StopMatcher matcher({"abcd", "bc"});
  const StopMatcher::Result result = matcher.Push("xabcd");
  EXPECT_EQ(result.text, "xa");
  EXPECT_EQ(result.match, "bc");
}

TEST(StopMatcherTest, OfTwoThatCompleteTogetherTheLongerWins) {
  StopMatcher matcher({"c", "abc"});
  const StopMatcher::Result result = matcher.Push("xabc");
  EXPECT_EQ(result.text, "x");
  EXPECT_EQ(result.match, "abc");
}

TEST(StopMatcherTest, NothingFollowsAMatch) {
  StopMatcher matcher({"."});
  EXPECT_EQ(matcher.Push("end. more").text, "end");
  const StopMatcher::Result result = matcher.Push("even more");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.match, ".");
}

TEST(StopMatcherTest, WithoutStopsTextPassesThrough) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Push("as is").text, "as is");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace baton::text
