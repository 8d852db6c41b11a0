#include "router/api/settings_hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The messages for these settings, at the temperature that is asked for, else at 0.7.
std::vector<std::string> Said(const v1::SamplingParams& asked, bool free_text = true) {
  std::vector<std::string> messages;
  for (const v1::Warning& hint :
       HintsOn(asked, asked.has_temperature() ? asked.temperature() : 0.7f, free_text)) {
    EXPECT_EQ(hint.kind(), v1::Warning::KIND_SETTING);
    EXPECT_EQ(hint.count(), 1u);
    messages.push_back(hint.message());
  }
  return messages;
}

TEST(SettingsHintsTest, UsualSettingsSayNothing) {
  v1::SamplingParams asked;
  EXPECT_THAT(Said(asked), IsEmpty());
  asked.set_temperature(1.5f);
  asked.set_top_k(5);
  asked.set_top_p(0.9f);
  asked.set_min_p(0.05f);
  EXPECT_THAT(Said(asked), IsEmpty());
  asked.set_top_k(0);
  EXPECT_THAT(Said(asked), IsEmpty());
}

TEST(SettingsHintsTest, ATemperatureAboveOneAndAHalfIsLikelyAMistake) {
  v1::SamplingParams asked;
  asked.set_temperature(1.8f);
  EXPECT_THAT(Said(asked), ElementsAre(StartsWith("temperature: 1.8 is above 1.5")));
}

TEST(SettingsHintsTest, AFewTokensAreEnoughForConstrainedTextAlone) {
  v1::SamplingParams asked;
  asked.set_top_k(4);
  EXPECT_THAT(Said(asked), ElementsAre(StartsWith("top_k: 4 leaves")));
  EXPECT_THAT(Said(asked, /*free_text=*/false), IsEmpty());
}

TEST(SettingsHintsTest, AtTemperatureZeroNothingElseHasAnEffect) {
  v1::SamplingParams asked;
  asked.set_temperature(0);
  EXPECT_THAT(Said(asked), IsEmpty());
  // These keep all tokens, or the likeliest one: they say no more than temperature 0.
  asked.set_top_k(1);
  asked.set_top_p(1);
  asked.set_min_p(0);
  EXPECT_THAT(Said(asked), IsEmpty());
  asked.set_top_k(3);
  asked.set_top_p(0.5f);
  asked.set_min_p(0.1f);
  EXPECT_THAT(Said(asked),
              ElementsAre(StartsWith("top_k: without effect"), StartsWith("top_p: without effect"),
                          StartsWith("min_p: without effect")));
}

// The temperature may be the model's.
TEST(SettingsHintsTest, AModelThatIsGreedyByDefaultTakesNoTopP) {
  v1::SamplingParams asked;
  asked.set_top_p(0.5f);
  const auto hints = HintsOn(asked, /*temperature=*/0, /*free_text=*/true);
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_THAT(hints[0].message(), StartsWith("top_p: without effect"));
}

}  // namespace
}  // namespace baton::router
