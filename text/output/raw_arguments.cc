#include "text/output/raw_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "text/output/constraint.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRawStart = "start: ";
constexpr int kMaxReferences = 8;  // that point to one another
constexpr const char* kAnything = "/(.|\\n)*/";

bool OneOf(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}
bool OnlyDescribes(std::string_view key) {
  return OneOf(key, {"title", "description", "$comment", "examples", "default", "deprecated", "readOnly",
                     "writeOnly"});
}

std::string LarkText(std::string_view text) { return Json(std::string(text)).dump(); }
std::string LarkPiece(const MarkerTable& markers, std::string_view marker) {
  if (marker.empty()) return "";
  const auto id = markers.IdOf(marker);
  return (id.has_value() ? fmt::format("<[{}]>", id->value()) : LarkText(marker)) + " ";
}

bool IsNull(const Json& schema) {
  return schema.is_object() && schema.contains("type") && schema["type"] == "null";
}

// Looks a schema up: behind references to the tool's definitions, and of a choice between something and null
// the something.
const Json* LookedUp(const Json& schema, const Json* property) {
  for (int i = 0; i < kMaxReferences && property->is_object(); ++i) {
    const Json* next = nullptr;
    for (const auto& [key, value] : property->items()) {
      if (OnlyDescribes(key)) continue;
      if (next != nullptr) return property;  // more than one keyword
      if (key == "$ref" && value.is_string()) {
        const std::string path = value.get<std::string>();
        if (!path.starts_with("#/$defs/") && !path.starts_with("#/definitions/")) return property;
        const size_t name = path.find('/', 2) + 1;
        const auto definitions = schema.find(path.substr(2, name - 3));
        if (definitions == schema.end() || !definitions->is_object()) return property;
        const auto found = definitions->find(path.substr(name));
        if (found == definitions->end()) return property;
        next = &*found;
      } else if ((key == "anyOf" || key == "oneOf") && value.is_array()) {
        for (const Json& branch : value) {
          if (IsNull(branch)) continue;
          if (next != nullptr) return property;
          next = &branch;
        }
        if (next == nullptr) return property;
      } else {
        return property;
      }
    }
    if (next == nullptr) return property;
    property = next;
  }
  return property;
}

// The type, if the schema says nothing else.
std::string OnlyType(const Json& schema) {
  std::string type;
  if (!schema.is_object()) return type;
  for (const auto& [key, value] : schema.items()) {
    if (OnlyDescribes(key)) continue;
    if (key != "type" || !value.is_string()) return "";
    type = value.get<std::string>();
  }
  return type;
}

// Limits of a string that is written as its text.
struct TextSchema {
  std::optional<std::vector<std::string>> values;
  uint64_t least = 0;
  std::optional<uint64_t> most;
};

std::optional<TextSchema> AsText(const Json& schema, const Json& property) {
  const Json& said = *LookedUp(schema, &property);
  if (!said.is_object()) return std::nullopt;
  TextSchema text;
  bool is_string = false;
  const auto add = [&text](const Json& value) {
    if (!text.values.has_value()) text.values.emplace();
    if (value.is_string()) text.values->push_back(value.get<std::string>());
    return value.is_string() || value.is_null();
  };
  for (const auto& [key, value] : said.items()) {
    if (key == "type") {
      const bool listed =
          value.is_array() && !value.empty() &&
          std::ranges::all_of(value, [](const Json& one) { return one == "string" || one == "null"; }) &&
          std::ranges::find(value, Json("string")) != value.end();
      if (value != "string" && !listed) return std::nullopt;
      is_string = true;
    } else if (key == "enum" && value.is_array() && !said.contains("const")) {
      for (const Json& one : value) {
        if (!add(one)) return std::nullopt;
      }
    } else if (key == "const" && !said.contains("enum")) {
      if (!add(value)) return std::nullopt;
    } else if ((key == "minLength" || key == "maxLength") && value.is_number_unsigned()) {
      if (key == "minLength") text.least = value.get<uint64_t>();
      if (key == "maxLength") text.most = value.get<uint64_t>();
    } else if (!OnlyDescribes(key)) {
      return std::nullopt;
    }
  }
  if (text.values.has_value()) {
    // Both say how long it may be; that is left to what reads schemas.
    if (text.values->empty() || text.least > 0 || text.most.has_value()) return std::nullopt;
    return text;
  }
  return is_string ? std::optional(text) : std::nullopt;
}

class ArgumentsWriter {
 public:
  ArgumentsWriter(const MarkerTable& markers, const Json& schema, int tool)
      : markers_(markers), format_(markers.format()), schema_(schema), tool_(tool) {}

  absl::StatusOr<std::string> Write() {
    BATON_RETURN_IF_ERROR(CheckKeywords());
    gap_ = fmt::format("GAP_{}", tool_);
    rules_ = fmt::format("{}: /[ \\t\\r\\n]{{1,4}}/\n", gap_);
    const auto properties = schema_.find("properties");
    std::string start;
    if (properties == schema_.end()) {
      const auto more = schema_.find("additionalProperties");
      start = more != schema_.end() && *more == false ? "" : Free();
    } else {
      BATON_ASSIGN_OR_RETURN(start, Members(*properties));
    }
    return fmt::format("{}{} {}?\n{}", kRawStart, start, gap_, rules_);
  }

 private:
  bool python() const { return format_.layout == Layout::kPython; }

  absl::Status CheckKeywords() const {
    for (const auto& [key, value] : schema_.items()) {
      if (OnlyDescribes(key) ||
          OneOf(key, {"type", "properties", "required", "$defs", "definitions", "$schema", "$id"})) {
        continue;
      }
      const bool any = value.is_boolean() || schema_.contains("properties");
      if (key == "additionalProperties" && any) continue;
      return absl::InvalidArgumentError(fmt::format(
          "{} of the arguments can't be enforced in format {}, which writes each on its own; give them as "
          "properties",
          baton::Quoted(key), format_.name));
    }
    return absl::OkStatus();
  }

  // Names that the format can write and its reader reads.
  absl::Status CheckKey(std::string_view key) const {
    const bool plain = !key.empty() && std::ranges::all_of(key, [&](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
             (!python() && std::string_view("-.:/$@").find(c) != std::string_view::npos);
    });
    if (plain) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("properties: {}: no name that format {} can write", baton::Quoted(key), format_.name));
  }

  absl::StatusOr<std::string> Members(const Json& properties) {
    if (!properties.is_object()) return absl::InvalidArgumentError("properties: not an object");
    if (std::ssize(properties) > kMaxSchemaProperties) {
      return absl::InvalidArgumentError(
          fmt::format("the schema has an object of {} members, at most {} are allowed", properties.size(),
                      kMaxSchemaProperties));
    }
    std::vector<std::string> required;
    if (const auto listed = schema_.find("required"); listed != schema_.end()) {
      if (!listed->is_array() || std::ssize(*listed) > kMaxSchemaProperties) {
        return absl::InvalidArgumentError(
            fmt::format("required: not a list of at most {}", kMaxSchemaProperties));
      }
      for (const Json& one : *listed) {
        if (!one.is_string() || !properties.contains(one.get<std::string>())) {
          return absl::InvalidArgumentError(fmt::format("required: {} is none of properties", one.dump()));
        }
        required.push_back(one.get<std::string>());
      }
    }
    std::vector<bool> needed;
    for (const auto& [key, property] : properties.items()) {
      BATON_RETURN_IF_ERROR(CheckKey(key));
      const std::string name = fmt::format("a{}_{}", tool_, needed.size());
      const absl::Status added = AddMember(name, key, property);
      if (!added.ok()) {
        return absl::Status(added.code(), fmt::format("properties[{}]: {}", baton::Quoted(key),
                                                      std::string(added.message())));
      }
      needed.push_back(std::ranges::find(required, key) != required.end());
    }
    return python() ? Listed(needed) : InRow(needed);
  }

  std::string InRow(const std::vector<bool>& needed) const {
    std::string row;
    for (size_t i = 0; i < needed.size(); ++i)
      row += fmt::format("a{}_{}{} ", tool_, i, needed[i] ? "" : "?");
    return row;
  }

  // The same with commas between: what may come first, and behind it what may follow.
  std::string Listed(const std::vector<bool>& needed) {
    std::string first;
    bool may_be_none = true;
    for (size_t i = 0; i < needed.size() && may_be_none; ++i) {
      const std::string rest = i + 1 < needed.size() ? fmt::format(" r{}_{}", tool_, i + 1) : "";
      first += fmt::format("{}a{}_{}{}", i == 0 ? "" : " | ", tool_, i, rest);
      may_be_none = !needed[i];
    }
    for (size_t i = 1; i < needed.size(); ++i) {
      const std::string rest = i + 1 < needed.size() ? fmt::format(" r{}_{}", tool_, i + 1) : "";
      const std::string one = fmt::format("COMMA_{0} a{0}_{1}", tool_, i);
      rules_ += fmt::format("r{}_{}: {}{}\n", tool_, i, needed[i] ? one : "(" + one + ")?", rest);
    }
    if (needed.size() > 1) AddComma();
    if (first.empty()) return "";
    return fmt::format("({}){}", first, may_be_none ? "?" : "");
  }

  void AddComma() { rules_ += fmt::format("COMMA_{}: /,[ \\n]{{0,2}}/\n", tool_); }

  // Arguments of which nothing is said.
  std::string Free() {
    if (python()) {
      AddComma();
      AddQuoted();
      rules_ += fmt::format("KEY_{0}: /[A-Za-z_][A-Za-z0-9_]{{0,63}}/ \"=\"\na{0}: KEY_{0} a{0}_v\n", tool_);
      rules_ += fmt::format("a{0}_v: \"True\" | \"False\" | \"None\" | QUOTED_{0} | {1}", tool_,
                            PythonSchema(Json::object()).value());
      return fmt::format("(a{0} (COMMA_{0} a{0})*)?", tool_);
    }
    const std::string value = Plain(fmt::format("TEXT_{}", tool_), {});
    rules_ += fmt::format("KEY_{0}: /[A-Za-z0-9_.\\-]{{1,64}}/\na{0}: {1}KEY_{0} {2}{3}\n", tool_, Opened(),
                          Behind(), value);
    return fmt::format("a{}*", tool_);
  }

  // Before a key between tags, and behind it up to the value.
  std::string Opened() const { return gap_ + "? " + LarkPiece(markers_, format_.key_open); }
  std::string Behind() const {
    const std::string closed = LarkPiece(markers_, format_.key_close);
    if (format_.value_open.empty()) return closed;
    return closed + gap_ + "? " + LarkPiece(markers_, format_.value_open);
  }

  absl::Status AddMember(const std::string& name, std::string_view key, const Json& property) {
    if (python()) {
      rules_ += fmt::format("{0}: \"{1}=\" {0}_v\n", name, key);
      return AddPythonValue(name, property);
    }
    const std::string head = fmt::format("{}: {}{} {}", name, Opened(), LarkText(key), Behind());
    if (const auto text = AsText(schema_, property); text.has_value()) {
      const std::string upper = absl::AsciiStrToUpper(name);
      if (text->values.has_value()) {
        for (const std::string& value : *text->values) {
          if (!Writable(value)) {
            return absl::InvalidArgumentError(
                fmt::format("{} holds a marker of format {}", baton::Quoted(value), format_.name));
          }
        }
      }
      const std::string value = Plain(upper, *text);
      rules_ += head + value + "\n";
      return absl::OkStatus();
    }
    BATON_ASSIGN_OR_RETURN(const std::string value, SchemaGrammar(WithDefinitions(property)));
    rules_ += fmt::format("{0}{1}? {2}_v {1}? {3}\n{2}_v: {4}", head, gap_, name,
                          LarkPiece(markers_, format_.value_close), value.substr(kRawStart.size()));
    return absl::OkStatus();
  }

  // Markers that are text, and would end a value wherever they stand in it.
  std::vector<std::string_view> Ending() const {
    std::vector<std::string_view> ending = {format_.value_close};
    for (const std::string_view marker : {format_.call_open, format_.call_close,
                                          format_.bare_name ? format_.name_open : std::string_view()}) {
      if (!marker.empty() && !markers_.IdOf(marker).has_value()) ending.push_back(marker);
    }
    return ending;
  }
  bool Writable(std::string_view value) const {
    return std::ranges::none_of(Ending(),
                                [&](std::string_view marker) { return value.find(marker) != value.npos; });
  }

  // A text and what closes it, of which it adds the terminal. Without an opener of values, a line break
  // stands on either side.
  std::string Plain(const std::string& terminal, const TextSchema& text) {
    std::string content;
    if (text.values.has_value()) {
      for (const std::string& value : *text.values)
        content += (content.empty() ? "" : " | ") + LarkText(value);
    } else {
      content = text.least == 0 && !text.most.has_value()
                    ? kAnything
                    : fmt::format("/(.|\\n){{{},{}}}/", text.least,
                                  text.most.has_value() ? fmt::format("{}", *text.most) : "");
      std::string ending;
      for (const std::string_view marker : Ending())
        ending += (ending.empty() ? "" : " | ") + LarkText(marker);
      content = fmt::format("{} & ~({} ({}) {})", content, kAnything, ending, kAnything);
    }
    const bool breaks = format_.value_open.empty();
    const bool spelled = !markers_.IdOf(format_.value_close).has_value();
    rules_ += fmt::format("{}: {}({}){}{}\n", terminal, breaks ? "\"\\n\" " : "", content,
                          breaks ? " \"\\n\"" : "", spelled ? " " + LarkText(format_.value_close) : "");
    return spelled ? terminal : terminal + " " + LarkPiece(markers_, format_.value_close);
  }

  absl::Status AddPythonValue(const std::string& name, const Json& property) {
    const Json& said = *LookedUp(schema_, &property);
    const std::string type = OnlyType(said);
    std::string value;
    if (type == "boolean") value = "\"True\" | \"False\"\n";
    if (type == "null") value = "\"None\"\n";
    if (value.empty()) {
      BATON_ASSIGN_OR_RETURN(value, PythonSchema(property));
      if (type == "string") value = fmt::format("QUOTED_{} | {}", tool_, value);
    }
    rules_ += fmt::format("{}_v: {}", name, value);
    if (value.starts_with("QUOTED") && !quoted_) AddQuoted();
    return absl::OkStatus();
  }

  // A string in single quotes, with the escapes that its reader knows.
  void AddQuoted() {
    quoted_ = true;
    rules_ += fmt::format("QUOTED_{}: /'([^'\\\\\\x00-\\x1f]|\\\\[nrt'\"\\\\])*'/\n", tool_);
  }

  absl::StatusOr<std::string> PythonSchema(const Json& property) const {
    BATON_ASSIGN_OR_RETURN(const std::string value,
                           SchemaGrammar(WithDefinitions(property), {.escapes = "nrt\\\""}));
    return value.substr(kRawStart.size());
  }

  // With what it may point to.
  std::string WithDefinitions(const Json& property) const {
    std::string text = property.dump();
    if (!property.is_object() || text.find("\"$ref\"") == std::string::npos) return text;
    Json whole = property;
    for (const char* const key : {"$defs", "definitions"}) {
      if (schema_.contains(key) && !whole.contains(key)) whole[key] = schema_[key];
    }
    return whole.dump();
  }

  const MarkerTable& markers_;
  const OutputFormat& format_;
  const Json& schema_;
  const int tool_;
  std::string gap_, rules_;
  bool quoted_ = false;
};

}  // namespace

bool IsPlainText(const Json& schema, const Json& property) { return AsText(schema, property).has_value(); }

absl::StatusOr<std::string> RawArguments(const MarkerTable& markers, const Json& schema, int tool) {
  return ArgumentsWriter(markers, schema, tool).Write();
}

}  // namespace baton::output
