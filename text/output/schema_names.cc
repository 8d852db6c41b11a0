#include "text/output/schema_names.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::set<std::string>;

constexpr size_t kMaxPatternBytes = 256;
// The largest schema that is copied for several names.
constexpr size_t kMaxCopiedBytes = 256;

// A recursive descent over the pattern. Where it meets what it does not know, or too many names, it gives up.
class NamesParser {
 public:
  NamesParser(std::string_view pattern, size_t most) : rest_(pattern), most_(most) {}

  // Up to the end, a bar or a closing bracket.
  std::optional<Names> Sequence() {
    Names names = {""};
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      auto next = Atom();
      if (!next.has_value()) return std::nullopt;
      if (Take('?')) next->insert("");
      if (names.size() * next->size() > most_) return std::nullopt;
      Names longer;
      for (const std::string& name : names) {
        for (const std::string& end : *next) longer.insert(name + end);
      }
      names = std::move(longer);
    }
    return names;
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  static constexpr int kMaxDepth = 16;

  std::optional<Names> Alternatives() {
    Names all;
    for (;;) {
      auto some = Sequence();
      if (!some.has_value()) return std::nullopt;
      all.merge(*some);
      if (all.size() > most_) return std::nullopt;
      if (!Take('|')) return all;
    }
  }
  bool Take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<Names> Atom() {
    if (Take('(')) {
      if (++depth_ > kMaxDepth || (Take('?') && !Take(':'))) return std::nullopt;
      auto inside = Alternatives();
      --depth_;
      return Take(')') ? std::move(inside) : std::nullopt;
    }
    if (Take('[')) return Class();
    const auto c = Character("\\^$.*+{}[]?");
    if (!c.has_value()) return std::nullopt;
    return Names{std::string(1, *c)};
  }
  // Only ASCII: other bytes are parts of characters.
  std::optional<char> Character(std::string_view special) {
    if (rest_.empty()) return std::nullopt;
    bool escaped = Take('\\');
    if (rest_.empty()) return std::nullopt;
    const char c = rest_.front();
    const bool word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (static_cast<unsigned char>(c) >= 0x80 || (escaped ? word : special.find(c) != special.npos)) {
      return std::nullopt;
    }
    rest_.remove_prefix(1);
    return c;
  }
  std::optional<Names> Class() {
    constexpr std::string_view kSpecial = "\\[]^&-";
    Names names;
    while (!Take(']')) {
      const auto first = Character(kSpecial);
      if (!first.has_value()) return std::nullopt;
      char last = *first;
      if (Take('-')) {
        const auto end = Character(kSpecial);
        if (!end.has_value()) return std::nullopt;
        last = *end;
      }
      if (last < *first) return std::nullopt;
      for (int c = *first; c <= last; ++c) names.insert(std::string(1, static_cast<char>(c)));
    }
    if (names.empty()) return std::nullopt;
    return names;
  }

  std::string_view rest_;
  const size_t most_;
  int depth_ = 0;
};

}  // namespace

std::optional<std::set<std::string>> NamesOf(std::string_view pattern, size_t most) {
  if (pattern.size() > kMaxPatternBytes || !pattern.starts_with('^') || !pattern.ends_with('$') ||
      pattern.ends_with("\\$"))
    return std::nullopt;
  pattern.remove_prefix(1);
  pattern.remove_suffix(1);
  NamesParser parser(pattern, most);
  // An anchor is part of the alternative beside it alone, so there is one at the top.
  auto names = parser.Sequence();
  if (!names.has_value() || !parser.AtEnd()) return std::nullopt;
  return names;
}

void TidyPatterns(Json& schema) {
  const auto patterns = schema.find("patternProperties");
  if (patterns == schema.end() || !patterns->is_object()) return;
  Json properties = schema.value("properties", Json::object());
  if (!properties.is_object()) return;
  // To the compiler, names that are required are properties, too.
  Names known;
  for (const auto& [name, value] : properties.items()) known.insert(name);
  if (const auto required = schema.find("required"); required != schema.end() && required->is_array()) {
    for (const Json& name : *required) {
      if (name.is_string()) known.insert(name.get<std::string>());
    }
  }
  std::vector<std::string> said;
  for (const auto& [pattern, value] : patterns->items()) {
    const auto names = NamesOf(pattern, known.size());
    if (!names.has_value() || !std::ranges::includes(known, *names)) continue;
    // Copies in copies would multiply.
    if (const std::string copied = value.dump();
        names->size() > 1 &&
        (copied.size() > kMaxCopiedBytes || copied.find("patternProperties") != copied.npos)) {
      continue;
    }
    for (const std::string& name : *names) {
      if (!properties.contains(name)) {
        properties[name] = value;
        continue;
      }
      Json& property = properties[name];
      const bool merged = property.is_object() && property.size() == 1 && property.contains("allOf") &&
                          property["allOf"].is_array();
      if (!merged) property = {{"allOf", Json::array({property})}};
      property["allOf"].push_back(value);
    }
    said.push_back(pattern);
  }
  if (said.empty()) return;
  for (const std::string& pattern : said) schema["patternProperties"].erase(pattern);
  schema["properties"] = std::move(properties);
}

}  // namespace baton::output
