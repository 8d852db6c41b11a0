#include "common/telemetry/otlp_json.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace baton::telemetry {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStatusError = 2;

Json ValueJson(const std::string& text) { return {{"stringValue", text}}; }
Json ValueJson(int64_t number) { return {{"intValue", absl::StrCat(number)}}; }
Json ValueJson(double number) { return {{"doubleValue", number}}; }
Json ValueJson(bool flag) { return {{"boolValue", flag}}; }
Json ValueJson(const std::vector<std::string>& texts) {
  Json values = Json::array();
  for (const std::string& text : texts) values.push_back(ValueJson(text));
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

Json AttributeJson(const std::string& key, Json value) {
  Json attribute = Json::object();
  attribute["key"] = key;
  attribute["value"] = std::move(value);
  return attribute;
}

Json SpanJson(const Span& span) {
  Json json = Json::object();
  json["traceId"] = Hex(span.trace_id);
  json["spanId"] = Hex(span.id);
  if (span.parent != SpanId{}) json["parentSpanId"] = Hex(span.parent);
  if (!span.trace_state.empty()) json["traceState"] = span.trace_state;
  json["flags"] = 1;  // sampled, or it would not be here
  json["name"] = span.name;
  json["kind"] = static_cast<int>(span.kind);
  json["startTimeUnixNano"] = absl::StrCat(absl::ToUnixNanos(span.start));
  json["endTimeUnixNano"] = absl::StrCat(absl::ToUnixNanos(std::max(span.start, span.end)));
  Json& attributes = json["attributes"] = Json::array();
  for (const auto& [key, value] : span.attributes) {
    attributes.push_back(
        AttributeJson(key, std::visit([](const auto& one) { return ValueJson(one); }, value)));
  }
  if (!span.error.empty()) json["status"] = {{"code", kStatusError}, {"message", span.error}};
  return json;
}

}  // namespace

std::string TracesToJson(const Resource& resource, std::span<const Span> spans) {
  Json of_scope = Json::object();
  of_scope["scope"]["name"] = "baton";
  Json& all = of_scope["spans"] = Json::array();
  for (const Span& span : spans) all.push_back(SpanJson(span));
  Json of_resource = Json::object();
  Json& attributes = of_resource["resource"]["attributes"] = Json::array();
  for (const auto& [key, value] : resource) attributes.push_back(AttributeJson(key, ValueJson(value)));
  of_resource["scopeSpans"] = Json::array({std::move(of_scope)});
  Json request = Json::object();
  request["resourceSpans"] = Json::array({std::move(of_resource)});
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t RejectedSpans(std::string_view response) {
  const nlohmann::json json = nlohmann::json::parse(response, nullptr, false);
  if (!json.is_object()) return 0;
  const auto partial = json.find("partialSuccess");
  if (partial == json.end() || !partial->is_object()) return 0;
  const auto rejected = partial->find("rejectedSpans");
  if (rejected == partial->end()) return 0;
  int64_t count = 0;
  if (rejected->is_number_integer()) count = rejected->get<int64_t>();
  if (rejected->is_string() && !absl::SimpleAtoi(rejected->get<std::string>(), &count)) return 0;
  return std::max<int64_t>(0, count);
}

}  // namespace baton::telemetry
