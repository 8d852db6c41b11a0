#include "text/output/schema_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

// RFC 1123, 2.1, over what DNS takes.
constexpr int64_t kHostnameBytes = 253;

// The compiler's own definitions are as their standards say, and cost a grammar no text.
constexpr std::array<std::string_view, 5> kCompilers = {"duration", "ipv4", "ipv6", "uri", "uuid"};

// Dates of RFC 3339 but for the year 0000, and times but for the second 60: many readers have neither. Groups
// capture, since those that do not are longer, and a grammar's text is bounded.
std::string DatePattern() {
  constexpr std::string_view kFourth = "(0[48]|[2468][048]|[13579][26])";
  return fmt::format(
      "(([1-9][0-9]{{3}}|0[1-9][0-9]{{2}}|00[1-9][0-9]|000[1-9])-"
      "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)|"
      "([0-9]{{2}}{0}|{0}00)-02-29)",
      kFourth);
}

std::string TimePattern() {
  constexpr std::string_view kMinute = "([01][0-9]|2[0-3]):[0-5][0-9]";
  return fmt::format(R"({0}:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]{0}))", kMinute);
}

// In the compiler's syntax. Empty: there is none.
std::string PatternOf(std::string_view format) {
  if (format == "date") return "^" + DatePattern() + "$";
  if (format == "time") return "^" + TimePattern() + "$";
  if (format == "date-time") return "^" + DatePattern() + "[Tt]" + TimePattern() + "$";
  // Beside the compiler's own, which has no bounds: the local part's (RFC 5321, 4.5.3.1) and those of labels.
  if (format == "email") return R"(^[!-?A-~]{1,64}@([!-\-/-~]{1,63}\.)*[!-\-/-~]{1,63}$)";
  return "";
}

}  // namespace

absl::Status TidyFormats(Json& schema, bool is_schema) {
  const auto at = schema.find("format");
  if (at == schema.end()) return absl::OkStatus();
  if (!at->is_string()) {
    if (!is_schema) return absl::OkStatus();
    return absl::InvalidArgumentError("format is not a string");
  }
  const std::string format = at->get<std::string>();
  if (std::ranges::find(kCompilers, format) != kCompilers.end()) return absl::OkStatus();
  if (format == "hostname") {
    Json& most = schema.emplace("maxLength", kHostnameBytes).first.value();
    if (most.is_number() && most > kHostnameBytes) most = kHostnameBytes;
    return absl::OkStatus();
  }
  if (format != "email") schema.erase("format");
  std::string pattern = PatternOf(format);
  if (pattern.empty()) return absl::OkStatus();
  if (!schema.contains("pattern")) {
    schema["pattern"] = std::move(pattern);
    return absl::OkStatus();
  }
  Json& all = schema.emplace("allOf", Json::array()).first.value();
  if (all.is_array()) all.push_back({{"pattern", std::move(pattern)}});
  return absl::OkStatus();
}

}  // namespace baton::output
