// StopMatcher: holds back text that may be the start of a stop string, across token borders, and finds the
// earliest match. One per sequence; one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::text {

class StopMatcher {
 public:
  // Empty strings are not allowed here (refused at the door).
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    // Safe to show: it neither contains nor can begin a stop string.
    std::string text;
    // The stop string that matched; text ends before it and nothing follows.
    std::optional<std::string> match;
  };
  Result Push(std::string_view text);
  // What was held back, when the generation ends for another reason.
  std::string Flush();

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace baton::text
