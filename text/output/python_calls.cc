#include "text/output/python_calls.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "common/json/strict_json.h"
#include "nlohmann/json.hpp"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;

bool IsWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::optional<std::vector<Call>> Calls() {
    std::vector<Call> calls;
    if (!Take('[')) return std::nullopt;
    while (!Take(']')) {
      if (!calls.empty() && !Take(',')) return std::nullopt;
      if (!calls.empty() && Take(']')) break;  // Python allows a comma at the end
      auto call = OneCall();
      if (!call.has_value()) return std::nullopt;
      calls.push_back(*std::move(call));
    }
    Skip();
    if (!rest_.empty() || calls.empty()) return std::nullopt;
    return calls;
  }

 private:
  void Skip() {
    while (!rest_.empty() && absl::ascii_isspace(static_cast<unsigned char>(rest_.front())))
      rest_.remove_prefix(1);
  }
  bool Take(char c) {
    Skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Letters, digits, underscores and, in names of functions, dots and hyphens.
  std::string Word(bool function) {
    Skip();
    size_t size = 0;
    while (size < rest_.size() &&
           (IsWord(rest_[size]) || (function && (rest_[size] == '.' || rest_[size] == '-')))) {
      ++size;
    }
    std::string word(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return word;
  }

  std::optional<Call> OneCall() {
    Call call;
    call.name = Word(true);
    if (call.name.empty() || !Take('(')) return std::nullopt;
    Json arguments = Json::object();
    absl::flat_hash_set<std::string> keys;
    while (!Take(')')) {
      if (!arguments.empty() && !Take(',')) return std::nullopt;
      if (!arguments.empty() && Take(')')) break;
      std::string key = Word(false);
      if (key.empty() || !keys.insert(key).second || !Take('=')) return std::nullopt;
      auto value = Value(kMaxDepth);
      if (!value.has_value()) return std::nullopt;
      json::Append(&arguments, std::move(key), *std::move(value));
    }
    call.arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
    return call;
  }

  std::optional<Json> Value(int depth) {
    Skip();
    if (rest_.empty() || depth == 0) return std::nullopt;
    const char c = rest_.front();
    if (c == '"' || c == '\'') return Text();
    if (c == '[' || c == '(') return List(depth);
    if (c == '{') return Dictionary(depth);
    if (c == '-' || absl::ascii_isdigit(static_cast<unsigned char>(c))) return Number();
    const std::string word = Word(false);
    if (word == "True" || word == "true") return Json(true);
    if (word == "False" || word == "false") return Json(false);
    if (word == "None" || word == "null") return Json(nullptr);
    return std::nullopt;
  }

  std::optional<Json> Number() {
    size_t size = 1;
    while (size < rest_.size() &&
           (IsWord(rest_[size]) || std::string_view("+-.").find(rest_[size]) != std::string_view::npos)) {
      ++size;
    }
    const auto number = json::Parse<Json>(rest_.substr(0, size));
    if (!number.ok() || !number->is_number()) return std::nullopt;
    rest_.remove_prefix(size);
    return *number;
  }

  std::optional<Json> Text() {
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && rest_.front() != quote) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\\') {
        if (rest_.empty()) return std::nullopt;
        c = rest_.front();
        rest_.remove_prefix(1);
        switch (c) {
          case 'n':
            c = '\n';
            break;
          case 't':
            c = '\t';
            break;
          case 'r':
            c = '\r';
            break;
          case '\\':
          case '\'':
          case '"':
            break;
          default:
            text += '\\';  // as Python keeps what it doesn't know
        }
      }
      text += c;
    }
    if (rest_.empty()) return std::nullopt;
    rest_.remove_prefix(1);
    return Json(std::move(text));
  }

  std::optional<Json> List(int depth) {
    const char close = rest_.front() == '[' ? ']' : ')';
    rest_.remove_prefix(1);
    Json list = Json::array();
    while (!Take(close)) {
      if (!list.empty() && !Take(',')) return std::nullopt;
      if (!list.empty() && Take(close)) break;
      auto value = Value(depth - 1);
      if (!value.has_value()) return std::nullopt;
      list.push_back(*std::move(value));
    }
    return list;
  }

  std::optional<Json> Dictionary(int depth) {
    rest_.remove_prefix(1);
    Json object = Json::object();
    absl::flat_hash_set<std::string> keys;
    while (!Take('}')) {
      if (!object.empty() && !Take(',')) return std::nullopt;
      if (!object.empty() && Take('}')) break;
      auto key = Value(depth - 1);
      if (!key.has_value() || !key->is_string() || !Take(':')) return std::nullopt;
      auto value = Value(depth - 1);
      if (!value.has_value()) return std::nullopt;
      std::string name = key->get<std::string>();
      if (!keys.insert(name).second) return std::nullopt;
      json::Append(&object, std::move(name), *std::move(value));
    }
    return object;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::vector<Call>> ReadPythonCalls(std::string_view text) { return Reader(text).Calls(); }

}  // namespace baton::output
