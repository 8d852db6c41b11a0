#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::text {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& pattern : stops) {
    BATON_CHECK(!pattern.empty()) << "empty stop string";
    std::vector<size_t> border(pattern.size() + 1, 0);
    size_t length = 0;
    for (size_t i = 1; i < pattern.size(); ++i) {
      while (length > 0 && pattern[i] != pattern[length]) length = border[length];
      if (pattern[i] == pattern[length]) ++length;
      border[i + 1] = length;
    }
    stops_.push_back({std::move(pattern), std::move(border)});
  }
}

StopMatcher::Result StopMatcher::Push(std::string_view text) {
  if (match_.has_value()) return {"", match_};
  for (size_t i = 0; i < text.size(); ++i) {
    const Stop* best = nullptr;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && text[i] != stop.pattern[stop.matched])
        stop.matched = stop.border[stop.matched];
      if (text[i] == stop.pattern[stop.matched]) ++stop.matched;
      if (stop.matched < stop.pattern.size()) continue;
      if (best == nullptr || stop.pattern.size() > best->pattern.size()) best = &stop;
    }
    if (best != nullptr) {
      held_.append(text.substr(0, i + 1));
      held_.resize(held_.size() - best->pattern.size());
      match_ = best->pattern;
      return {std::exchange(held_, {}), match_};
    }
  }
  size_t hold = 0;
  for (const Stop& stop : stops_) hold = std::max(hold, stop.matched);
  held_.append(text);
  const size_t safe = held_.size() - hold;
  Result result{held_.substr(0, safe), std::nullopt};
  held_.erase(0, safe);
  return result;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace baton::text
