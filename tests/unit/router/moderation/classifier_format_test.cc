// Verdicts of each family of classifiers, as their model cards show them.
#include "router/moderation/classifier_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace baton::router::moderation {
namespace {

const ClassifierFormat& Format(std::string_view name) {
  const ClassifierFormat* const format = FindClassifierFormat(name);
  if (format == nullptr) ADD_FAILURE() << name;
  return *format;
}

struct Vector {
  std::string_view format, text;
  bool flagged;
  std::vector<std::string> categories;
};

TEST(ClassifierFormatTest, VerdictsAsTheModelsWriteThem) {
  const std::vector<Vector> vectors = {
      {"baton_guard", "safe", false, {}},
      {"baton_guard", "unsafe\nthreat,secret", true, {"threat", "secret"}},
      {"llama_guard", "\n\nsafe", false, {}},
      {"llama_guard", "\n\nunsafe\nS1,S10", true, {"Violent Crimes", "Hate"}},
      {"llama_guard", "unsafe\nS9", true, {"Indiscriminate Weapons"}},
      {"llama_guard", "unsafe\nS99", true, {"S99"}},
      {"llama_guard", "unsafe", true, {"unsafe"}},
      {"shield_gemma", "Yes", true, {"Dangerous Content"}},
      {"shield_gemma", "No", false, {"Dangerous Content"}},
      {"qwen3guard", "Safety: Safe\nCategories: None", false, {}},
      {"qwen3guard", "Safety: Unsafe\nCategories: Violent", true, {"Violent"}},
      {"qwen3guard",
       "Safety: Controversial\nCategories: Politically Sensitive Topics, PII\nRefusal: No",
       true,
       {"Politically Sensitive Topics", "PII"}},
      {"qwen3guard", "Safety: Safe\nCategories: None\nRefusal: Yes", false, {}},
      {"qwen3guard_loose", "Safety: Controversial\nCategories: Unethical Acts", false, {}},
      {"qwen3guard_loose", "Safety: Unsafe\nCategories: Suicide & Self-Harm", true, {"Suicide & Self-Harm"}},
      {"granite_guardian", "Yes", true, {"harm"}},
      {"granite_guardian", "No", false, {"harm"}},
      {"granite_guardian_3_3", "<score> yes </score>", true, {"harm"}},
      {"granite_guardian_3_3", "<think>\n</think>\n<score> no </score>", false, {"harm"}},
      {"granite_guardian_4_1", "<think>\n</think>\n<score> yes </score>", true, {"harm"}},
      {"granite_guardian_4_1", "<score>no</score>", false, {"harm"}},
  };
  for (const Vector& one : vectors) {
    SCOPED_TRACE(std::string(one.format) + ": " + std::string(one.text));
    const ClassifierFormat& format = Format(one.format);
    const auto verdict = ReadVerdict(format, format.questions.front(), one.text, {});
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(verdict->flagged, one.flagged);
    std::vector<std::string> names;
    for (const Category& category : verdict->categories) {
      names.push_back(category.name);
      EXPECT_EQ(category.score, one.flagged ? 1 : 0);
    }
    EXPECT_EQ(names, one.categories);
  }
}

TEST(ClassifierFormatTest, WhatIsNoVerdictIsAnError) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama_guard", ""},           {"llama_guard", "I cannot help"}, {"llama_guard", "safely"},
      {"llama_guard", "Safe"},       {"qwen3guard", "Unsafe"},         {"qwen3guard", "Safety: Maybe"},
      {"shield_gemma", "Yesterday"}, {"granite_guardian_3_3", "yes"},  {"granite_guardian_3_3", "<score> "},
      {"baton_guard", "un"},
  };
  for (const auto& [name, text] : cases) {
    SCOPED_TRACE(std::string(name) + ": " + text);
    const ClassifierFormat& format = Format(name);
    EXPECT_TRUE(absl::IsInternal(ReadVerdict(format, format.questions.front(), text, {}).status()));
  }
}

v1::StepLogprobs Step(const std::vector<std::pair<std::string, double>>& tokens) {
  v1::StepLogprobs step;
  int id = 0;
  for (const auto& [bytes, p] : tokens) {
    v1::TokenLogprob* const token = id == 0 ? step.mutable_chosen() : step.add_top();
    token->set_token_id(id++);
    token->set_bytes(bytes);
    token->set_logprob(static_cast<float>(std::log(p)));
  }
  *step.add_top() = step.chosen();
  return step;
}

TEST(ClassifierFormatTest, TheScoreIsTheShareOfTheUnsafeWordAtItsToken) {
  {
    const ClassifierFormat& format = Format("llama_guard");
    const std::vector<v1::StepLogprobs> steps = {Step({{"\n\n", 1}}),
                                                 Step({{"un", 0.6}, {"safe", 0.2}, {"other", 0.1}}),
                                                 Step({{"safe", 0.9}, {"un", 0.1}}), Step({{"\nS1", 1}})};
    const auto verdict = ReadVerdict(format, format.questions.front(), "\n\nunsafe\nS1", steps);
    ASSERT_TRUE(verdict.ok());
    EXPECT_NEAR(verdict->categories.at(0).score, 0.75, 1e-6);
  }
  {
    const ClassifierFormat& format = Format("shield_gemma");
    const std::vector<v1::StepLogprobs> steps = {Step({{"No", 0.5}, {"Yes", 0.3}, {"Maybe", 0.2}})};
    const auto verdict = ReadVerdict(format, format.questions.front(), "No", steps);
    ASSERT_TRUE(verdict.ok());
    EXPECT_FALSE(verdict->flagged);
    EXPECT_NEAR(verdict->categories.at(0).score, 0.375, 1e-6);
  }
  {
    const ClassifierFormat& format = Format("qwen3guard");
    const std::vector<v1::StepLogprobs> steps = {
        Step({{"Safety", 1}}), Step({{":", 1}}),
        Step({{" Unsafe", 0.5}, {" Safe", 0.25}, {" Controversial", 0.25}}),
        Step({{"\nCategories: Violent", 1}})};
    const auto verdict =
        ReadVerdict(format, format.questions.front(), "Safety: Unsafe\nCategories: Violent", steps);
    ASSERT_TRUE(verdict.ok());
    EXPECT_NEAR(verdict->categories.at(0).score, 0.75, 1e-6);
  }
}

TEST(ClassifierFormatTest, TheVerdictsOfAllQuestionsAreOne) {
  const std::vector<Verdict> verdicts = {{false, {{"a", 0.1}}, 10}, {true, {{"b", 0.9}}, 20}};
  const Verdict all = Together(verdicts);
  EXPECT_TRUE(all.flagged);
  EXPECT_EQ(all.tokens, 30);
  ASSERT_EQ(all.categories.size(), 2u);
  EXPECT_EQ(all.categories[1].name, "b");
}

// A row that reads two ways would let text pass.
TEST(ClassifierFormatTest, NoWordOfATableRowBeginsAnotherOfTheOtherKind) {
  for (const ClassifierFormat& format : ClassifierFormats()) {
    SCOPED_TRACE(std::string(format.name));
    EXPECT_FALSE(format.questions.empty());
    for (const std::string_view safe : format.safe) {
      for (const std::string_view bad : format.unsafe) {
        EXPECT_FALSE(safe.starts_with(bad));
        EXPECT_FALSE(bad.starts_with(safe));
      }
    }
  }
}

}  // namespace
}  // namespace baton::router::moderation
