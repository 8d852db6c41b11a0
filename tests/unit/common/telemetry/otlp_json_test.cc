#include "common/telemetry/otlp_json.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace baton::telemetry {
namespace {

// The example of OTLP's specification, with our kinds of values.
TEST(OtlpJsonTest, IdsAreHexadecimalAndLongIntegersAreStrings) {
  Span span;
  for (uint8_t i = 0; i < 16; ++i) span.trace_id[i] = static_cast<uint8_t>(0x11 * i);
  for (uint8_t i = 0; i < 8; ++i) span.id[i] = static_cast<uint8_t>(0xf0 + i);
  for (uint8_t i = 0; i < 8; ++i) span.parent[i] = i;
  span.trace_state = "foo=1";
  span.name = "prefill";
  span.kind = Span::Kind::kServer;
  span.start = absl::FromUnixNanos(1544712660300000001);
  span.end = absl::FromUnixNanos(1544712661300000002);
  span.attributes = {{"text", std::string("a\"b")},
                     {"number", int64_t{9007199254740993}},
                     {"real", 0.5},
                     {"flag", true},
                     {"texts", std::vector<std::string>{"x", "y"}}};
  span.error = "UNAVAILABLE";
  const std::string json = TracesToJson({{"service.name", "baton-router"}}, {{span}});
  EXPECT_EQ(nlohmann::json::parse(json), nlohmann::json::parse(R"({"resourceSpans": [{
    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "baton-router"}}]},
    "scopeSpans": [{"scope": {"name": "baton"}, "spans": [{
      "traceId": "00112233445566778899aabbccddeeff", "spanId": "f0f1f2f3f4f5f6f7", "parentSpanId": "0001020304050607",
      "traceState": "foo=1", "flags": 1, "name": "prefill", "kind": 2,
      "startTimeUnixNano": "1544712660300000001", "endTimeUnixNano": "1544712661300000002",
      "attributes": [{"key": "text", "value": {"stringValue": "a\"b"}},
                     {"key": "number", "value": {"intValue": "9007199254740993"}},
                     {"key": "real", "value": {"doubleValue": 0.5}},
                     {"key": "flag", "value": {"boolValue": true}},
                     {"key": "texts", "value": {"arrayValue": {"values": [{"stringValue": "x"}, {"stringValue": "y"}]}}}],
      "status": {"code": 2, "message": "UNAVAILABLE"}}]}]}]})"));
}

TEST(OtlpJsonTest, WhatIsAbsentIsLeftOut) {
  Span span;
  span.start = absl::FromUnixSeconds(2);
  span.end = absl::FromUnixSeconds(1);
  span.name = "broken \xff";
  const nlohmann::json json = nlohmann::json::parse(TracesToJson({}, {{span}}));
  const nlohmann::json& shown = json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_FALSE(shown.contains("parentSpanId"));
  EXPECT_FALSE(shown.contains("traceState"));
  EXPECT_FALSE(shown.contains("status"));
  EXPECT_EQ(shown["kind"], 1);
  EXPECT_EQ(shown["endTimeUnixNano"], shown["startTimeUnixNano"]) << "no span ends before it begins";
  EXPECT_EQ(shown["name"], "broken \xef\xbf\xbd");
}

TEST(OtlpJsonTest, RejectedSpansAreRead) {
  EXPECT_EQ(RejectedSpans(R"({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no"}})"), 3);
  EXPECT_EQ(RejectedSpans(R"({"partialSuccess": {"rejectedSpans": 2}})"), 2);
  for (const char* nothing :
       {"", "{}", "[]", "{", R"({"partialSuccess": 1})", R"({"partialSuccess": {}})",
        R"({"partialSuccess": {"rejectedSpans": "-1"}})", R"({"partialSuccess": {"rejectedSpans": "x"}})"}) {
    EXPECT_EQ(RejectedSpans(nothing), 0) << nothing;
  }
}

}  // namespace
}  // namespace baton::telemetry
