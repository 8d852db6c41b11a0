#include "text/output/constraint.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "nlohmann/json.hpp"
#include "text/output/schema_formats.h"
#include "text/output/schema_names.h"
#include "text/output/schema_numbers.h"
#include "text/output/schema_patterns.h"
#include "text/utf8.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxLarkBytes = size_t{16} << 10;
constexpr const char* kOptions = "x-guidance";
// White space between the parts of a JSON text, in one place: two blanks, or a line break and what the next
// line is indented by. Models that may write as much of it as they like sometimes write nothing else.
constexpr const char* kWhitespace = " {1,2}|\\r?\\n[ \\t]{0,64}";

Json Options(const JsonStyle& style = {}) {
  Json options = {{"whitespace_pattern", kWhitespace}};
  if (!style.escapes.empty()) options["json_allowed_escapes"] = style.escapes;
  return options;
}

// Objects with more members than the compiler takes in time. As deep as the parser lets JSON nest.
absl::Status CheckSizes(const Json& value) {
  if (value.is_object() && value.size() > kMaxSchemaProperties) {
    return absl::InvalidArgumentError(
        fmt::format("the schema has an object of {} members, at most {} are allowed", value.size(),
                    kMaxSchemaProperties));
  }
  if (value.is_structured()) {
    for (const Json& one : value) BATON_RETURN_IF_ERROR(CheckSizes(one));
  }
  return absl::OkStatus();
}

// The keyword's members are names with schemas.
bool HasNames(std::string_view key) {
  return key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions";
}

// A $ref may lead to a schema anywhere.
absl::Status TidyElsewhere(Json& value) {
  if (!value.is_structured()) return absl::OkStatus();
  if (value.is_object()) {
    BATON_RETURN_IF_ERROR(TidyNumbers(value));
    TidyPatterns(value);
    BATON_RETURN_IF_ERROR(TranslatePatterns(value, /*is_schema=*/false));
  }
  for (auto& [key, one] : value.items()) {
    if (value.is_object() && (key == "const" || (key == "enum" && one.is_array()))) continue;
    if (value.is_object() && HasNames(key) && one.is_object()) {
      for (Json& named : one) BATON_RETURN_IF_ERROR(TidyElsewhere(named));
    } else {
      BATON_RETURN_IF_ERROR(TidyElsewhere(one));
    }
  }
  return value.is_object() ? TidyFormats(value, /*is_schema=*/false) : absl::OkStatus();
}

// Takes what only describes out of a schema and those inside it: it can be most of a tool's, and would count
// against the bounds of a grammar. Refuses what the compiler takes though it means nothing. Values of enum,
// const and the like are no schemas. As deep as the parser lets JSON nest.
absl::Status TidySchema(Json& schema) {
  if (!schema.is_object()) return absl::OkStatus();
  for (const char* const key : {"title", "description", "$comment", "examples", "default"}) schema.erase(key);
  BATON_RETURN_IF_ERROR(TidyNumbers(schema));
  TidyPatterns(schema);
  BATON_RETURN_IF_ERROR(TranslatePatterns(schema, /*is_schema=*/true));
  for (auto& [key, value] : schema.items()) {
    const bool named = HasNames(key);
    const bool listed = key == "allOf" || key == "anyOf" || key == "oneOf" || key == "prefixItems" ||
                        (key == "items" && value.is_array());
    if ((named && value.is_object()) || (listed && value.is_array())) {
      for (Json& one : value) BATON_RETURN_IF_ERROR(TidySchema(one));
    } else if (key == "items" || key == "additionalItems" || key == "additionalProperties") {
      BATON_RETURN_IF_ERROR(TidySchema(value));
    } else if (key != "const" && key != "enum") {
      BATON_RETURN_IF_ERROR(TidyElsewhere(value));
    }
  }
  return TidyFormats(schema, /*is_schema=*/true);
}

// Findings about a schema's texts, wherever they stand.
struct Texts {
  // An object with names that have schemas of their own may have others, too.
  bool names_beside_others = false;
  // One of them, or a member's name in one, has a character that only \u can write.
  bool controls = false;
};

bool HasControls(std::string_view text) {
  return std::ranges::any_of(text, [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 &&
            std::string_view("\b\f\n\r\t").find(c) == std::string_view::npos) ||
           c == 0x7f;
  });
}

void LookAtTexts(const Json& value, bool is_value, Texts* texts) {
  if (value.is_string() && is_value)
    texts->controls = texts->controls || HasControls(value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  if (value.is_object() && !is_value) {
    const auto others = value.find("additionalProperties");
    const bool open = others == value.end() || *others != Json(false);
    for (const char* const key : {"properties", "patternProperties"}) {
      const auto names = value.find(key);
      if (open && names != value.end() && !names->empty()) texts->names_beside_others = true;
    }
  }
  for (const auto& [key, one] : value.items()) {
    if (value.is_object() && is_value) texts->controls = texts->controls || HasControls(key);
    if (value.is_object() && !is_value && HasNames(key) && one.is_object()) {
      for (const Json& named : one) LookAtTexts(named, /*is_value=*/false, texts);
    } else {
      LookAtTexts(one, is_value || (value.is_object() && (key == "const" || key == "enum")), texts);
    }
  }
}

// The grammar tells a member's name by how it is written, and "\u0061" would be another one than "a": where
// that matters, each character is written in one way.
absl::StatusOr<JsonStyle> StyleFor(const Json& schema, const JsonStyle& style) {
  constexpr std::string_view kOneSpelling = "nrbtf\\\"";
  Texts texts;
  LookAtTexts(schema, /*is_value=*/false, &texts);
  const JsonStyle used = {style.escapes.empty() && texts.names_beside_others ? kOneSpelling : style.escapes};
  // The compiler would leave the character out.
  if (texts.controls && !used.escapes.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "the schema has a const or an enum with a control character that only \\u can write, which {}",
        style.escapes.empty()
            ? "can't be beside an object whose names are not all known: say additionalProperties false"
            : "this model's calls don't have"));
  }
  return used;
}

int64_t Occurrences(std::string_view text, std::string_view what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

}  // namespace

absl::StatusOr<std::string> SchemaGrammar(std::string_view schema, const JsonStyle& style) {
  BATON_ASSIGN_OR_RETURN(Json parsed, json::Parse<Json>(schema));
  if (!parsed.is_object() && !parsed.is_boolean()) {
    return absl::InvalidArgumentError("a schema is a JSON object, true or false");
  }
  BATON_RETURN_IF_ERROR(CheckSizes(parsed));
  BATON_RETURN_IF_ERROR(TidySchema(parsed));
  BATON_RETURN_IF_ERROR(CheckSteps(parsed));
  if (parsed.is_boolean()) parsed = parsed.get<bool>() ? Json::object() : Json{{"not", Json::object()}};
  if (parsed.contains(kOptions)) {
    return absl::InvalidArgumentError(
        fmt::format("the schema has the keyword {}, which is not for clients", kOptions));
  }
  BATON_ASSIGN_OR_RETURN(const JsonStyle used, StyleFor(parsed, style));
  json::Append(&parsed, kOptions, Options(used));
  return "start: %json " + parsed.dump() + "\n";
}

std::string AnyObjectGrammar() {
  return "start: %json " + Json{{"type", "object"}, {kOptions, Options()}}.dump() + "\n";
}

absl::StatusOr<std::string> RegexGrammar(std::string_view regex) {
  if (regex.empty()) return absl::InvalidArgumentError("the regular expression is empty");
  // Between slashes a slash is written with a backslash, and a line break as an escape.
  std::string written;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      written += c;
      written += regex[++i];
    } else if (c == '/') {
      written += "\\/";
    } else if (c == '\n') {
      written += "\\n";
    } else {
      written += c;
    }
  }
  return "start: /" + written + "/\n";
}

absl::StatusOr<std::string> ChoiceGrammar(std::span<const std::string> choices) {
  if (choices.empty() || std::ssize(choices) > kMaxChoices) {
    return absl::InvalidArgumentError(
        fmt::format("{} choices, 1 to {} are allowed", choices.size(), kMaxChoices));
  }
  std::string written = "start: CHOICE\nCHOICE: ";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty()) return absl::InvalidArgumentError(fmt::format("choice {} is empty", i));
    if (!text::IsUtf8(choices[i]))
      return absl::InvalidArgumentError(fmt::format("choice {} is not UTF-8", i));
    written += (i == 0 ? "" : " | ") + Json(choices[i]).dump();
  }
  return written + "\n";
}

absl::StatusOr<std::string> LarkGrammar(std::string_view lark) {
  if (lark.size() > kMaxLarkBytes) {
    return absl::InvalidArgumentError(
        fmt::format("the grammar is {} bytes long, at most {} are allowed", lark.size(), kMaxLarkBytes));
  }
  if (lark.find(kOptions) != lark.npos) {
    return absl::InvalidArgumentError(
        fmt::format("the grammar has the keyword {}, which is not for clients", kOptions));
  }
  if (const int64_t members = Occurrences(lark, "\":"); members > kMaxSchemaProperties) {
    return absl::InvalidArgumentError(fmt::format(
        "the grammar's schemas have {} members, at most {} are allowed", members, kMaxSchemaProperties));
  }
  return std::string(lark);
}

std::string InnerGrammar(std::string_view lark) { return fmt::format("start: %lark {{\n{}\n}}\n", lark); }

}  // namespace baton::output
