#include "router/moderation/rules.h"

#include <gtest/gtest.h>

namespace baton::router::moderation {
namespace {

absl::StatusOr<Rules> Parse(const std::string& text) {
  return ParseRules(model::Json::parse(text, nullptr, /*allow_exceptions=*/false), "f");
}

TEST(RulesTest, SayThePolicyAndWhatGoesWithIt) {
  const auto rules = Parse(R"({"policy": "block", "input": true, "fail_open": true})");
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(*rules, (Rules{Policy::kBlock, true, true}));
  EXPECT_EQ(*Parse(R"({"policy": "score"})"), (Rules{Policy::kScore, false, false}));
  EXPECT_EQ(Parse(R"({"policy": "off"})")->policy, Policy::kOff);
  EXPECT_EQ(Parse(R"({"policy": "block", "timeout_seconds": 0.5})")->timeout, absl::Milliseconds(500));
}

TEST(RulesTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(Parse("[]").status().message(), "f: not an object");
  EXPECT_EQ(Parse(R"({"policy": "block", "open": true})").status().message(), "f: unknown field \"open\"");
  EXPECT_EQ(Parse(R"({"policy": "deny"})").status().message(),
            "f: field \"policy\" is \"deny\"; use \"block\", \"score\" or \"off\"");
  EXPECT_FALSE(Parse("{}").ok());
  for (const char* const time : {"0", "0.01", "601", "-1", "\"10\"", "1e400"}) {
    EXPECT_FALSE(Parse(R"({"policy": "block", "timeout_seconds": )" + std::string(time) + "}").ok()) << time;
  }
  EXPECT_FALSE(Parse(R"({"policy": "block", "input": 1})").ok());
}

}  // namespace
}  // namespace baton::router::moderation
