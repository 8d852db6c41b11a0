// Schemas in the kinds that clients send, and the official JSON-Schema-Test-Suite (make_schemas.py): a schema
// is enforced whole, or refused with a word of it in the message. Under one that is enforced, valid instances
// are answers and invalid ones are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/golden/schemas/schema_rig.h"
#include "text/grammar.h"

namespace baton::output {
namespace {

using Json = nlohmann::ordered_json;

struct Enforced {
  size_t index;
  const Json* one;
  text::GrammarMatcher start;
};

class SchemasTest : public testing::Test {
 protected:
  static Json Read(const std::string& name) {
    return Json::parse(std::ifstream(std::string(BATON_SOURCE_DIR) + "/tests/golden/schemas/" + name));
  }

  // Returns the cases that are not refused.
  std::vector<Enforced> Compile(const Json& cases) {
    std::vector<Enforced> enforced;
    for (size_t i = 0; i < cases.size(); ++i) {
      const Json& one = cases[i];
      auto matcher = rig_.Compile(one["schema"].dump());
      if (matcher.ok()) {
        enforced.push_back({.index = i, .one = &one, .start = *std::move(matcher)});
        continue;
      }
      EXPECT_TRUE(absl::IsInvalidArgument(matcher.status())) << one["name"] << matcher.status();
      EXPECT_FALSE(matcher.status().message().empty()) << one["name"];
      refused_.push_back(one["name"].get<std::string>() + ": " + std::string(matcher.status().message()));
    }
    return enforced;
  }

  SchemaRig rig_;
  std::vector<std::string> refused_;
};

TEST_F(SchemasTest, ValidInstancesAreAnswersAndInvalidOnesAreNot) {
  const Json cases = Read("schemas.json");
  ASSERT_GE(cases.size(), 300u);
  size_t instances = 0;
  const std::vector<Enforced> enforced = Compile(cases);
  EXPECT_GE(enforced.size(), 300u);
  for (const Enforced& schema : enforced) {
    const Json& one = *schema.one;
    for (const Json& instance : one["valid"]) {
      // Without white space, and as people read it.
      for (const int indent : {-1, 2}) {
        EXPECT_TRUE(rig_.Takes(schema.start.Fork(), instance.dump(indent)))
            << one["name"] << " refuses " << instance << "\n"
            << one["schema"];
        ++instances;
      }
    }
    for (const Json& instance : one["invalid"]) {
      EXPECT_FALSE(rig_.Takes(schema.start.Fork(), instance.dump()))
          << one["name"] << " takes " << instance << "\n"
          << one["schema"];
      ++instances;
    }
  }
  EXPECT_GT(instances, 1500u);
  // All schemas of the kinds that clients send compile; of those that show one keyword, these do not.
  for (const std::string& refused : refused_) {
    EXPECT_THAT(refused, testing::StartsWith("keyword "));
    EXPECT_THAT(refused,
                testing::ContainsRegex("\"(uniqueItems|if|propertyNames|dependentSchemas|dependentRequired|"
                                       "unevaluatedProperties|unevaluatedItems|not|contains)|"
                                       "oneOf: its branches|look-around"));
  }
}

TEST_F(SchemasTest, RandomWalksAreJson) {
  const Json cases = Read("schemas.json");
  const char* const path = getenv("BATON_WALKS");
  std::ofstream out;
  if (path != nullptr) out.open(path);
  std::mt19937_64 random(41);
  size_t complete = 0;
  const std::vector<Enforced> enforced = Compile(cases);
  for (const Enforced& schema : enforced) {
    for (int walk = 0; walk < 2; ++walk) {
      const std::string text = rig_.Walk(schema.start.Fork(), random);
      if (text.empty()) continue;
      ++complete;
      const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      // The reader refuses numbers that no double holds; grammars bound no exponent.
      if (value.is_discarded()) {
        EXPECT_NE(text.find_first_of("eE"), std::string::npos) << text;
        continue;
      }
      out << schema.index << '\t' << Json(text).dump() << '\n';  // as it was written: no double rounds it
    }
  }
  EXPECT_GT(complete, enforced.size());
}

TEST_F(SchemasTest, TheOfficialSuiteFindsNothingInvalidAccepted) {
  const Json cases = Read("official.json");
  std::vector<std::string> taken, refused;
  const std::vector<Enforced> enforced = Compile(cases);
  for (const Enforced& schema : enforced) {
    const Json& one = *schema.one;
    for (const Json& instance : one["invalid"]) {
      if (rig_.Takes(schema.start.Fork(), instance.dump()))
        taken.push_back(one["name"].get<std::string>() + ": " + instance.dump());
    }
    for (const Json& instance : one["valid"]) {
      if (!rig_.Takes(schema.start.Fork(), instance.dump()))
        refused.push_back(one["name"].get<std::string>() + ": " + instance.dump());
    }
  }
  EXPECT_TRUE(taken.empty()) << testing::PrintToString(taken);
  // Members in another order than the schema's, integers written with a fraction, and formats, which the
  // suite takes for annotations.
  for (const std::string& valid : refused) {
    EXPECT_THAT(valid, testing::ContainsRegex(
                           "^(allOf: allOf|const: const with object|format: )|: .*[0-9]\\.0|e\\+15$"));
  }
  EXPECT_LE(refused.size(), 22u);
  EXPECT_GT(enforced.size(), 100u);
}

}  // namespace
}  // namespace baton::output
