// StopMatcher: finds stop strings in a stream of text, across token borders, and holds back what may be the
// start of one. The match that completes first wins, and of two that complete with the same byte the longer
// one; so the result depends on the text alone, not on how it was cut. Pieces and stops are whole UTF-8
// characters, hence so is what comes out. One per sequence; one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::text {

class StopMatcher {
 public:
  // Empty strings are not allowed here (the router refuses them).
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    // Safe to show: it neither contains nor can begin a stop string.
    std::string text;
    // The stop string that matched; text ends before it and nothing follows.
    std::optional<std::string> match;
  };
  // After a match, every further piece is dropped. Time: bytes of text x number of stops.
  Result Push(std::string_view text);
  // Returns the text that was held back, when the generation ends for another reason.
  std::string Flush();

 private:
  // Knuth, Morris and Pratt, "Fast pattern matching in strings" (1977): one automaton per stop string.
  struct Stop {
    std::string pattern;
    std::vector<size_t> border;  // border[i]: length of the longest proper border of pattern[0, i)
    size_t matched = 0;          // length of the longest prefix of pattern that ends the text so far
  };

  std::vector<Stop> stops_;
  std::string held_;  // the end of the text so far, as long as the longest `matched`
  std::optional<std::string> match_;
};

}  // namespace baton::text
