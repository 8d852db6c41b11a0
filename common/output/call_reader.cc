#include "common/output/call_reader.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "common/json/strict_json.h"
#include "common/output/python_calls.h"
#include "nlohmann/json.hpp"

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

// {"name": ..., "arguments" or "parameters": {...}, "id": ...}; other members are ignored.
std::optional<Call> ReadObject(std::string_view text) {
  if (!IsObject(text)) return std::nullopt;
  Call call;
  for (const auto& [key, raw] : RawMembers(text)) {
    if (key == "name" || key == "id") {
      const auto value = Text(raw);
      if (!value.has_value()) return std::nullopt;
      (key == "name" ? call.name : call.id) = *value;
    } else if (key == "arguments" || key == "parameters") {
      call.arguments = std::string(raw);
      if (const auto quoted = Text(raw); quoted.has_value()) call.arguments = *quoted;  // JSON in a string
    }
  }
  if (call.arguments.empty()) call.arguments = "{}";
  if (call.name.empty() || !IsObject(call.arguments)) return std::nullopt;
  return call;
}

Calls ReadList(std::string_view text) {
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

Calls ReadNamed(const OutputFormat& format, std::string_view text) {
  for (const std::string_view first : {format.kind, format.kind_separator}) {
    if (!text.starts_with(first)) return std::nullopt;
    text.remove_prefix(first.size());
  }
  const size_t separator = text.find(format.separator);
  if (separator == std::string_view::npos) return std::nullopt;
  std::string_view header = Trimmed(text.substr(0, separator));
  std::string_view arguments = Trimmed(text.substr(separator + format.separator.size()));
  Call call;
  if (!format.id_separator.empty()) {
    if (const size_t id = header.find(format.id_separator); id != std::string_view::npos) {
      call.id = std::string(Trimmed(header.substr(id + format.id_separator.size())));
      header = Trimmed(header.substr(0, id));
    }
  }
  call.name = format.header_is_id ? NameInHeader(header) : std::string(header);
  if (format.header_is_id) call.id = std::string(header);
  if (!format.fence_open.empty() && arguments.starts_with(format.fence_open)) {
    arguments.remove_prefix(format.fence_open.size());
    if (!arguments.ends_with(format.fence_close)) return std::nullopt;
    arguments.remove_suffix(format.fence_close.size());
    arguments = Trimmed(arguments);
  }
  call.arguments = std::string(arguments);
  if (call.name.empty() || !IsObject(call.arguments)) return std::nullopt;
  return std::vector<Call>{std::move(call)};
}

// A raw value: a string if the schema says so, else the JSON that it is, else a string.
Json Typed(std::string_view raw, const std::string& type) {
  if (type != "string") {
    const auto json = json::Parse<Json>(raw);
    if (json.ok() && (!type.empty() || !json->is_string())) return *json;
  }
  return std::string(raw);
}

// One line break after the opening tag and one before the closing one are not of the value.
std::string_view WithoutBreaks(std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  return value;
}

Calls ReadTagged(const OutputFormat& format, std::string_view text, const ParameterType& type) {
  Call call;
  size_t key = text.find(format.key_open);
  std::string_view name = text.substr(0, key);
  if (!format.name_open.empty()) {
    if (!name.starts_with(format.name_open)) return std::nullopt;
    name.remove_prefix(format.name_open.size());
    const size_t end = name.find(format.name_close);
    if (end == std::string_view::npos) return std::nullopt;
    name = name.substr(0, end);
  }
  call.name = std::string(Trimmed(name));
  if (call.name.empty() || call.name.find_first_of("<>\n") != std::string::npos) return std::nullopt;
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
  }
  call.arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
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
