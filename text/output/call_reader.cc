#include "text/output/call_reader.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "common/json/strict_json.h"
#include "nlohmann/json.hpp"
#include "text/output/python_calls.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::optional<std::vector<Call>>;

std::string_view Trimmed(std::string_view text) {
  const auto space = [](char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

bool IsObject(std::string_view text) {
  const auto json = json::Parse<Json>(text);
  return json.ok() && json->is_object();
}

// The end of the JSON value that begins at `at` in a valid text.
size_t EndOfValue(std::string_view text, size_t at) {
  int depth = 0;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth < 0) return at;
    if (c == ',' && depth == 0) return at;
  }
  return at;
}

// The members of an object, or the items of a list (without keys), as they are written; of valid JSON.
std::vector<std::pair<std::string, std::string_view>> RawMembers(std::string_view text) {
  std::vector<std::pair<std::string, std::string_view>> members;
  const bool object = text.front() == '{';
  size_t at = 1;
  while (at < text.size()) {
    while (at < text.size() && (absl::ascii_isspace(static_cast<unsigned char>(text[at])) || text[at] == ','))
      ++at;
    if (at >= text.size() || text[at] == '}' || text[at] == ']') break;
    std::string key;
    if (object) {
      size_t end = at + 1;
      while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      key = Json::parse(text.substr(at, end + 1 - at), nullptr, false).get<std::string>();
      at = text.find(':', end + 1) + 1;
    }
    const size_t end = EndOfValue(text, at);
    members.emplace_back(std::move(key), Trimmed(text.substr(at, end - at)));
    at = end;
  }
  return members;
}

std::optional<std::string> Text(std::string_view raw) {
  const Json json = Json::parse(raw, nullptr, false);
  if (!json.is_string()) return std::nullopt;
  return json.get<std::string>();
}

}  // namespace

void AppendJson(const ValueEnd& before, char c, std::string* json) {
  if (!before.takes_text() || static_cast<unsigned char>(c) >= 0x20) {
    *json += c;
    return;
  }
  const std::string quoted = Json(std::string(1, c)).dump();
  json->append(quoted, 1, quoted.size() - 2);
}

namespace {

// A JSON text with the escapes that AppendJson adds.
std::string WithEscapes(std::string_view text) {
  std::string json;
  json.reserve(text.size());
  ValueEnd value;
  for (const char c : text) {
    AppendJson(value, c, &json);
    value.Push(c);
  }
  return json;
}

}  // namespace

// {"name": ..., "arguments" or "parameters": {...}, "id": ...}; other members are ignored.
std::optional<Call> ReadObject(std::string_view written) {
  const std::string text = WithEscapes(written);
  if (!IsObject(text)) return std::nullopt;
  Call call;
  for (const auto& [key, raw] : RawMembers(text)) {
    if (key == "name" || key == "id") {
      const auto value = Text(raw);
      if (!value.has_value()) return std::nullopt;
      (key == "name" ? call.name : call.id) = *value;
    } else if (key == "arguments" || key == "parameters") {
      call.arguments = std::string(raw);
      if (const auto quoted = Text(raw); quoted.has_value())
        call.arguments = WithEscapes(*quoted);  // JSON in a string
    }
  }
  if (call.arguments.empty()) call.arguments = "{}";
  if (call.name.empty() || !IsObject(call.arguments)) return std::nullopt;
  return call;
}

namespace {

Calls ReadList(std::string_view written) {
  const std::string text = WithEscapes(written);
  const auto json = json::Parse<Json>(text);
  if (!json.ok() || !json->is_array()) return std::nullopt;
  std::vector<Call> calls;
  for (const auto& [key, raw] : RawMembers(text)) {
    auto call = ReadObject(raw);
    if (!call.has_value()) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  return calls;
}

// "functions.NAME:0" names a function and the place of the call.
std::string NameInHeader(std::string_view header) {
  constexpr std::string_view kFunctions = "functions.";
  if (header.starts_with(kFunctions)) header.remove_prefix(kFunctions.size());
  const size_t colon = header.rfind(':');
  return std::string(header.substr(0, colon));
}

}  // namespace

std::optional<Call> ReadHeader(const OutputFormat& format, std::string_view header) {
  header = Trimmed(header);
  for (const std::string_view first : {format.kind, format.kind_separator}) {
    if (!header.starts_with(first)) return std::nullopt;
    header.remove_prefix(first.size());
  }
  header = Trimmed(header);
  Call call;
  if (!format.id_separator.empty()) {
    if (const size_t id = header.find(format.id_separator); id != std::string_view::npos) {
      call.id = std::string(Trimmed(header.substr(id + format.id_separator.size())));
      header = Trimmed(header.substr(0, id));
    }
  }
  call.name = format.header_is_id ? NameInHeader(header) : std::string(header);
  if (format.header_is_id) call.id = std::string(header);
  if (call.name.empty()) return std::nullopt;
  return call;
}

namespace {

Calls ReadNamed(const OutputFormat& format, std::string_view text) {
  // The kind's separator may be the name's, too.
  const size_t kind = format.kind.size() + format.kind_separator.size();
  const size_t separator = text.find(format.separator, std::min(kind, text.size()));
  if (separator == std::string_view::npos) return std::nullopt;
  auto read = ReadHeader(format, text.substr(0, separator));
  if (!read.has_value()) return std::nullopt;
  Call call = *std::move(read);
  std::string_view arguments = Trimmed(text.substr(separator + format.separator.size()));
  if (!format.fence_open.empty() && arguments.starts_with(format.fence_open)) {
    arguments.remove_prefix(format.fence_open.size());
    if (!arguments.ends_with(format.fence_close)) return std::nullopt;
    arguments.remove_suffix(format.fence_close.size());
    arguments = Trimmed(arguments);
  }
  call.arguments = WithEscapes(arguments);
  if (!IsObject(call.arguments)) return std::nullopt;
  return std::vector<Call>{std::move(call)};
}

// A raw value: a string if the schema says so, else the JSON that it is, else a string.
Json Typed(std::string_view raw, const std::string& type) {
  if (type != "string") {
    const auto json = json::Parse<Json>(WithEscapes(raw));
    if (json.ok() && (!type.empty() || !json->is_string())) return *json;
    // As Python writes them, which models of this layout learned from. Without a schema they may be text.
    const std::string_view word = Trimmed(raw);
    if (!type.empty() && (word == "True" || word == "False")) return word == "True";
    if (!type.empty() && word == "None") return nullptr;
  }
  return std::string(raw);
}

// One line break after the opening tag and one before the closing one are not of the value.
std::string_view WithoutBreaks(std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  return value;
}

// True if nothing stands behind a name or an argument, or only what ends the call.
bool Ends(const OutputFormat& format, std::string_view rest) {
  rest = Trimmed(rest);
  return rest.empty() || rest == format.end;
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::optional<std::string> ReadTaggedName(const OutputFormat& format, std::string_view header) {
  header = Trimmed(header);
  if (!format.name_open.empty()) {
    if (!header.starts_with(format.name_open)) return std::nullopt;
    header.remove_prefix(format.name_open.size());
    const size_t end = header.find(format.name_close);
    if (end == std::string_view::npos) return std::nullopt;
    if (!Ends(format, header.substr(end + format.name_close.size()))) return std::nullopt;
    header = header.substr(0, end);
  }
  std::string name(Trimmed(header));
  if (name.empty() || name.find_first_of("<>\n") != std::string::npos) return std::nullopt;
  return name;
}

std::string ReadTaggedValue(std::string_view raw, const std::string& type) { return Dump(Typed(raw, type)); }

namespace {

Calls ReadTagged(const OutputFormat& format, std::string_view text, const ParameterType& type) {
  Call call;
  size_t key = text.find(format.key_open);
  auto name = ReadTaggedName(format, text.substr(0, key));
  if (!name.has_value()) return std::nullopt;
  call.name = *std::move(name);
  Json arguments = Json::object();
  absl::flat_hash_set<std::string> keys;
  while (key != std::string_view::npos) {
    text.remove_prefix(key + format.key_open.size());
    const size_t key_end = text.find(format.key_close);
    if (key_end == std::string_view::npos) return std::nullopt;
    std::string parameter(Trimmed(text.substr(0, key_end)));
    text.remove_prefix(key_end + format.key_close.size());
    if (!format.value_open.empty()) {
      text = Trimmed(text);
      if (!text.starts_with(format.value_open)) return std::nullopt;
      text.remove_prefix(format.value_open.size());
    }
    const size_t value_end = text.find(format.value_close);
    if (value_end == std::string_view::npos || !keys.insert(parameter).second) return std::nullopt;
    const std::string_view raw = text.substr(0, value_end);
    const std::string kind = type == nullptr ? "" : type(call.name, parameter);
    json::Append(&arguments, std::move(parameter),
                 Typed(format.value_open.empty() ? WithoutBreaks(raw) : raw, kind));
    text.remove_prefix(value_end + format.value_close.size());
    key = text.find(format.key_open);
    if (!Ends(format, text.substr(0, key))) return std::nullopt;
  }
  call.arguments = Dump(arguments);
  return std::vector<Call>{std::move(call)};
}

}  // namespace

Calls ReadCalls(const OutputFormat& format, std::string_view text, const ParameterType& type) {
  text = Trimmed(text);
  switch (format.layout) {
    case Layout::kNone:
      return std::nullopt;
    case Layout::kObject: {
      auto call = ReadObject(text);
      if (!call.has_value()) return std::nullopt;
      return std::vector<Call>{*std::move(call)};
    }
    case Layout::kList:
      return ReadList(text);
    case Layout::kNamed:
      return ReadNamed(format, text);
    case Layout::kTagged:
      return ReadTagged(format, text, type);
    case Layout::kPython:
      return ReadPythonCalls(text);
  }
  return std::nullopt;
}

}  // namespace baton::output
