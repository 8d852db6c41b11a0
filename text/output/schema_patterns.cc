#include "text/output/schema_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/quote.h"
#include "common/base/status.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

// ECMA-262: WhiteSpace and LineTerminator; digits and characters of words are ASCII.
constexpr std::string_view kSpaces =
    R"(\t\n\x{b}\x{c}\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff})";
constexpr std::string_view kLineEnds = R"(\n\r\x{2028}\x{2029})";
constexpr std::string_view kDigits = "0-9", kWord = "0-9A-Z_a-z";

// In a string of JSON, the compiler's classes of characters take an escaped quotation mark and an escaped
// backslash for members as soon as they have all control characters: [^"] would let "\\"" be written. So no
// class has U+0000.
constexpr std::string_view kNul = R"(\x{0})";

// A look-around, which the compiler refuses.
constexpr const char* kRefused = "(?!)";

std::string Escaped(uint32_t code) { return fmt::format("\\x{{{:x}}}", code); }

// The members of the class that `letter` names: d, s or w; empty: none.
std::string_view ClassOf(char letter) {
  switch (absl::ascii_tolower(letter)) {
    case 'd':
      return kDigits;
    case 's':
      return kSpaces;
    case 'w':
      return kWord;
    default:
      return {};
  }
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) BATON_RETURN_IF_ERROR(Next());
    return std::move(made_);
  }

 private:
  // A character, or a class that an escape names; already in the compiler's syntax, for inside of brackets.
  struct Member {
    std::string text;
    bool is_class = false;
  };

  bool Take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  static absl::Status Nul() { return Wrong("no string with U+0000 is written under a pattern"); }
  static absl::Status Wrong(const std::string& why) { return absl::InvalidArgumentError(why); }

  absl::Status Next() {
    const char c = rest_.front();
    if (c == '*' || c == '+' || c == '?' || (c == '{' && Bounds().has_value())) return Quantifier();
    repeatable_ = true;
    if (c == '\\') return Escape();
    if (c == '[') return Class();
    if (c == '(') return Group();
    rest_.remove_prefix(1);
    if (c == '.') {
      made_ += fmt::format("[^{}{}]", kLineEnds, kNul);
    } else if (c == '\0') {
      return Nul();
    } else if (c == '{' || c == '}' || c == ']') {
      made_ += '\\';
      made_ += c;
    } else {
      repeatable_ = c != '^' && c != '$' && c != '|';
      made_ += c;
    }
    return absl::OkStatus();
  }

  // {2}, {2,} or {2,5} that stands next.
  std::optional<std::string_view> Bounds() const {
    size_t at = 1;
    const auto digits = [&] {
      const size_t first = at;
      while (at < rest_.size() && absl::ascii_isdigit(rest_[at])) ++at;
      return at > first;
    };
    if (!digits()) return std::nullopt;
    if (at < rest_.size() && rest_[at] == ',') {
      ++at;
      digits();
    }
    if (at >= rest_.size() || rest_[at] != '}') return std::nullopt;
    return rest_.substr(0, at + 1);
  }

  absl::Status Quantifier() {
    if (!std::exchange(repeatable_, false)) return Wrong("there is nothing that its quantifier repeats");
    const std::string_view quantifier = rest_.front() == '{' ? *Bounds() : rest_.substr(0, 1);
    made_ += quantifier;
    rest_.remove_prefix(quantifier.size());
    if (Take("?")) made_ += '?';
    return absl::OkStatus();
  }

  absl::Status Group() {
    rest_.remove_prefix(1);
    repeatable_ = false;
    made_ += '(';
    if (!Take("?")) return absl::OkStatus();
    for (const std::string_view kind : {":", "i:", "-i:", "=", "!", "<=", "<!"}) {
      if (!Take(kind)) continue;
      made_ += fmt::format("?{}", kind);
      return absl::OkStatus();
    }
    const size_t end = rest_.find('>');
    const std::string_view name = end == rest_.npos ? "" : rest_.substr(0, end);
    const auto known = [](char one) { return absl::ascii_isalnum(one) || one == '_' || one == '$'; };
    if (name.size() < 2 || name.front() != '<' || !std::ranges::all_of(name.substr(1), known)) {
      return Wrong("it has a group that ECMA-262 does not know");
    }
    // Names are for who replaces, and for back-references.
    rest_.remove_prefix(end + 1);
    made_ += "?:";
    return absl::OkStatus();
  }

  absl::Status Escape() {
    if (rest_.size() > 1) {
      const char letter = rest_[1];
      if (letter == 'b' || letter == 'B') {
        made_ += rest_.substr(0, 2);
        rest_.remove_prefix(2);
        repeatable_ = false;
        return absl::OkStatus();
      }
      if ((letter >= '1' && letter <= '9') || letter == 'k') return Wrong("it refers back to a group");
      if (letter == 'D' || letter == 'S' || letter == 'W') {
        made_ += fmt::format("[^{}{}]", ClassOf(letter), kNul);
        rest_.remove_prefix(2);
        return absl::OkStatus();
      }
    }
    BATON_ASSIGN_OR_RETURN(const Member member, EscapedMember());
    if (member.text == kNul) return Nul();
    made_ += member.is_class ? fmt::format("[[{}]--{}]", member.text, kNul) : member.text;
    return absl::OkStatus();
  }

  absl::Status Class() {
    rest_.remove_prefix(1);
    const bool negated = Take("^");
    std::string members;
    while (!Take("]")) {
      if (rest_.empty()) return Wrong("its class has no end");
      BATON_ASSIGN_OR_RETURN(Member first, ClassMember());
      members += first.text;
      // A hyphen at an end of the class, or beside a class, stands for itself; no range begins behind it.
      if (!rest_.starts_with('-') || rest_.starts_with("-]")) continue;
      rest_.remove_prefix(1);
      if (rest_.empty()) return Wrong("its class has no end");
      BATON_ASSIGN_OR_RETURN(const Member last, ClassMember());
      members += first.is_class || last.is_class ? "\\-" : "-";
      members += last.text;
    }
    if (members.empty()) {
      if (!negated) return Wrong("its class [] has no character, so nothing matches");
      made_ += fmt::format("[^{}]", kNul);
    } else if (negated) {
      made_ += fmt::format("[^{}{}]", members, kNul);
    } else {
      made_ += fmt::format("[[{}]--{}]", members, kNul);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Member> ClassMember() {
    if (rest_.front() == '\\') {
      if (Take("\\b")) return Member{Escaped('\b')};
      if (rest_.size() > 1 && absl::ascii_isupper(rest_[1]) && !ClassOf(rest_[1]).empty()) {
        Member all{fmt::format("[^{}]", ClassOf(rest_[1])), true};
        rest_.remove_prefix(2);
        return all;
      }
      return EscapedMember();
    }
    const char c = rest_.front();
    size_t bytes = 1;
    // The rest of a character of several bytes.
    while (bytes < rest_.size() && static_cast<unsigned char>(c) >= 0xc0 &&
           (static_cast<unsigned char>(rest_[bytes]) & 0xc0) == 0x80)
      ++bytes;
    Member member;
    // These have meanings of their own in the compiler's classes; the colon in [:alpha:].
    if (std::string_view("[&~-^:").find(c) != std::string_view::npos) member.text = '\\';
    member.text += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return member;
  }

  // The escape that stands next, if it means the same in and out of a class.
  absl::StatusOr<Member> EscapedMember() {
    rest_.remove_prefix(1);
    if (rest_.empty()) return Wrong("it ends with a backslash");
    const char c = rest_.front();
    if (static_cast<unsigned char>(c) >= 0x80) {
      return Wrong("it escapes a character that ECMA-262 has no escape for");
    }
    if (c == 'p' || c == 'P') {
      const size_t end = rest_.find('}');
      const std::string_view name = end == rest_.npos ? "" : rest_.substr(0, end).substr(1);
      const auto known = [](char one) { return absl::ascii_isalnum(one) || one == '_' || one == '='; };
      if (!name.starts_with('{') || !std::ranges::all_of(name.substr(1), known)) {
        return Wrong(fmt::format("\\{} has no name in braces", c));
      }
      Member property{fmt::format("\\{}", rest_.substr(0, end + 1)), true};
      rest_.remove_prefix(end + 1);
      return property;
    }
    rest_.remove_prefix(1);
    if (const std::string_view all = ClassOf(c); !all.empty()) return Member{std::string(all), true};
    switch (c) {
      case 't':
        return Member{Escaped('\t')};
      case 'n':
        return Member{Escaped('\n')};
      case 'v':
        return Member{Escaped('\v')};
      case 'f':
        return Member{Escaped('\f')};
      case 'r':
        return Member{Escaped('\r')};
      case '0':
        if (!rest_.empty() && absl::ascii_isdigit(rest_.front())) return Wrong("\\0 stands before a digit");
        return Member{Escaped(0)};
      case 'c': {
        if (rest_.empty() || !absl::ascii_isalpha(rest_.front())) return Wrong("\\c stands before no letter");
        const uint32_t code = static_cast<unsigned char>(rest_.front()) % 32;
        rest_.remove_prefix(1);
        return Member{Escaped(code)};
      }
      case 'x':
      case 'u':
        return Code(c);
      default:
        if (absl::ascii_isalnum(c)) {
          return Wrong(fmt::format("\\{} is no escape of ECMA-262{}", c,
                                   c == 'A' || c == 'Z' || c == 'z' ? ": use ^ and $" : ""));
        }
        return Member{Escaped(static_cast<unsigned char>(c))};
    }
  }

  absl::StatusOr<Member> Code(char kind) {
    const absl::Status wrong = Wrong(fmt::format("\\{} has no code that is a character's", kind));
    if (kind == 'u' && rest_.starts_with('{')) {
      const size_t end = rest_.find('}');
      if (end == rest_.npos || end > 9) return wrong;
      rest_.remove_prefix(1);
      const auto code = Hexadecimal(end - 1);
      if (!code.has_value() || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000)) return wrong;
      rest_.remove_prefix(1);
      return Member{Escaped(*code)};
    }
    auto code = Hexadecimal(kind == 'x' ? 2 : 4);
    if (code.has_value() && *code >= 0xd800 && *code < 0xdc00 && Take("\\u")) {
      const auto low = Hexadecimal(4);
      if (!low.has_value() || *low < 0xdc00 || *low >= 0xe000) return wrong;
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
    }
    if (!code.has_value() || (*code >= 0xd800 && *code < 0xe000)) return wrong;
    return Member{Escaped(*code)};
  }

  std::optional<uint32_t> Hexadecimal(size_t digits) {
    if (digits == 0 || rest_.size() < digits) return std::nullopt;
    uint32_t code = 0;
    for (const char c : rest_.substr(0, digits)) {
      if (!absl::ascii_isxdigit(c)) return std::nullopt;
      code = code * 16 +
             static_cast<uint32_t>(absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
    }
    rest_.remove_prefix(digits);
    return code;
  }

  std::string_view rest_;
  std::string made_;
  bool repeatable_ = false;
};

}  // namespace

absl::StatusOr<std::string> CompilerPattern(std::string_view pattern) { return Translator(pattern).Run(); }

absl::Status TranslatePatterns(Json& schema, bool is_schema) {
  const auto translated = [&](const std::string& pattern,
                              std::string_view key) -> absl::StatusOr<std::string> {
    auto made = CompilerPattern(pattern);
    if (made.ok()) return made;
    if (!is_schema) return kRefused;
    return absl::InvalidArgumentError(
        fmt::format("{}: {}: {}", key, Quoted(pattern), std::string(made.status().message())));
  };
  if (const auto pattern = schema.find("pattern"); pattern != schema.end() && pattern->is_string()) {
    BATON_ASSIGN_OR_RETURN(*pattern, translated(pattern->get<std::string>(), "pattern"));
  }
  const auto patterns = schema.find("patternProperties");
  if (patterns == schema.end() || !patterns->is_object()) return absl::OkStatus();
  Json renamed = Json::object();
  for (auto& [pattern, value] : patterns->items()) {
    BATON_ASSIGN_OR_RETURN(const std::string name, translated(pattern, "patternProperties"));
    if (is_schema && renamed.contains(name)) {
      return absl::InvalidArgumentError(
          fmt::format("patternProperties: {} stands there twice", Quoted(pattern)));
    }
    renamed[name] = std::move(value);
  }
  *patterns = std::move(renamed);
  return absl::OkStatus();
}

}  // namespace baton::output
