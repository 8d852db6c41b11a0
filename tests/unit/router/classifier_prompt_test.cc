// Prompts of each family of classifiers. The shipped one's are rendered by its own template; the others' by
// stand-ins, which have our code and, of what the family's template writes, the lines that a vector needs:
// those that hold what we send, and those that tell families apart. The lines are those of the model cards
// that router/moderation/classifier_format.cc names, and of what their templates were seen to write (those of
// Llama Guard 3 and Granite Guardian 3 are public beside their cards, and a prompt of ShieldGemma's is). For
// Granite Guardian 3.3 there are none: no prompt of it was at hand.
//
// To make a vector again: take the card's prompt, put the words of a passage where it has the user's and the
// assistant's, and the value of the question's variable where it has the guideline or the risk.
#include "router/api/classifier_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "router/api/conversation.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using moderation::Passage;

constexpr char kGuard[] = BATON_SOURCE_DIR "/models/baton-guard";
constexpr int64_t kContext = 8192;

struct Family {
  std::string_view format;
  std::string chat_template;
  std::string prompt;  // of a user's "one"
  std::string answer;  // of an assistant's "two", by which that is answered
};

std::vector<Family> MakeFamilies() {
  std::vector<Family> families = {
      {.format = "llama_guard",
       .chat_template =
           R"({% set who = 'User' if messages[-1].role == 'user' else 'Agent' %}Task: Check if there is unsafe content in '{{ who }}' messages in conversations according our safety policy with the below categories.

<BEGIN UNSAFE CONTENT CATEGORIES>
S1: Violent Crimes.
<END UNSAFE CONTENT CATEGORIES>

<BEGIN CONVERSATION>

{% for one in messages %}{{ 'User' if one.role == 'user' else 'Agent' }}: {{ one.content }}

{% endfor %}<END CONVERSATION>

Provide your safety assessment for ONLY THE LAST {{ who }} message in the above conversation:
- First line must read 'safe' or 'unsafe'.)",
       .prompt =
           R"(Task: Check if there is unsafe content in 'User' messages in conversations according our safety policy with the below categories.

<BEGIN UNSAFE CONTENT CATEGORIES>
S1: Violent Crimes.
<END UNSAFE CONTENT CATEGORIES>

<BEGIN CONVERSATION>

User: one

<END CONVERSATION>

Provide your safety assessment for ONLY THE LAST User message in the above conversation:
- First line must read 'safe' or 'unsafe'.)",
       .answer =
           R"(Task: Check if there is unsafe content in 'Agent' messages in conversations according our safety policy with the below categories.

<BEGIN UNSAFE CONTENT CATEGORIES>
S1: Violent Crimes.
<END UNSAFE CONTENT CATEGORIES>

<BEGIN CONVERSATION>

User: one

Agent: two

<END CONVERSATION>

Provide your safety assessment for ONLY THE LAST Agent message in the above conversation:
- First line must read 'safe' or 'unsafe'.)"},
      {.format = "shield_gemma",
       .chat_template =
           R"({% set answer = messages[-1].role == 'assistant' %}<start_of_turn>
Human Question: {{ messages[0].content }}
<end_of_turn>
{% if answer %}
<start_of_turn>
Chatbot Response: {{ messages[-1].content }}
<end_of_turn>
{% endif %}

Our safety principle is defined in the below:

* {{ guideline }}

===

Does the {{ 'Chatbot Response' if answer else 'human question' }} violate the above principle? Your answer must start with 'Yes' or 'No'.)",
       .prompt = R"(<start_of_turn>
Human Question: one
<end_of_turn>

Our safety principle is defined in the below:

* "No Dangerous Content": The prompt shall not contain or seek generation of content that harming oneself and/or others (e.g., accessing or building firearms and explosive devices, promotion of terrorism, instructions for suicide).

===

Does the human question violate the above principle? Your answer must start with 'Yes' or 'No'.)",
       .answer = R"(<start_of_turn>
Human Question: one
<end_of_turn>
<start_of_turn>
Chatbot Response: two
<end_of_turn>

Our safety principle is defined in the below:

* "No Dangerous Content": The chatbot shall not generate content that harming oneself and/or others (e.g., accessing or building firearms and explosive devices, promotion of terrorism, instructions for suicide).

===

Does the Chatbot Response violate the above principle? Your answer must start with 'Yes' or 'No'.)"},
      {.format = "qwen3guard",
       .chat_template =
           R"({% set who = 'ASSISTANT' if messages[-1].role == 'assistant' else 'USER' %}<BEGIN SAFETY POLICY>
**Safety: Controversial**
<END SAFETY POLICY>

<BEGIN UNSAFE CONTENT CATEGORIES>
Violent.
<END UNSAFE CONTENT CATEGORIES>

<BEGIN CONVERSATION>

{% for one in messages %}{{ 'USER' if one.role == 'user' else 'ASSISTANT' }}: {{ one.content }}

{% endfor %}<END CONVERSATION>

Provide your safety assessment for ONLY THE LAST **{{ who }}'s {{ 'query' if who == 'USER' else 'response' }}** in the above conversation:
 - The first line must be one of: 'Safety: Safe', 'Safety: Unsafe', 'Safety: Controversial'.
 - The second line should start with 'Categories:')",
       .prompt = R"(<BEGIN SAFETY POLICY>
**Safety: Controversial**
<END SAFETY POLICY>

<BEGIN UNSAFE CONTENT CATEGORIES>
Violent.
<END UNSAFE CONTENT CATEGORIES>

<BEGIN CONVERSATION>

USER: one

<END CONVERSATION>

Provide your safety assessment for ONLY THE LAST **USER's query** in the above conversation:
 - The first line must be one of: 'Safety: Safe', 'Safety: Unsafe', 'Safety: Controversial'.
 - The second line should start with 'Categories:')",
       .answer = R"(<BEGIN SAFETY POLICY>
**Safety: Controversial**
<END SAFETY POLICY>

<BEGIN UNSAFE CONTENT CATEGORIES>
Violent.
<END UNSAFE CONTENT CATEGORIES>

<BEGIN CONVERSATION>

USER: one

ASSISTANT: two

<END CONVERSATION>

Provide your safety assessment for ONLY THE LAST **ASSISTANT's response** in the above conversation:
 - The first line must be one of: 'Safety: Safe', 'Safety: Unsafe', 'Safety: Controversial'.
 - The second line should start with 'Categories:')"},
      {.format = "granite_guardian",
       .chat_template =
           R"({% set who = messages[-1].role %}You are a safety agent trying to help determine whether the {{ who }} message{{ ' to the user message' if who == 'assistant' }} is harmful according to the safety risk definition below.

<start_of_turn>
{% for one in messages %}{{ one.role | capitalize }} Message: {{ one.content }}
{% endfor %}<end_of_turn>

Our safety risk definition is defined below:

<start_of_risk_definition>
- {{ guardian_config.risk_name }}
<end_of_risk_definition>

Is the {{ who }} message harmful based on the risk definition? Your answer must be either 'Yes' or 'No'.)",
       .prompt =
           R"(You are a safety agent trying to help determine whether the user message is harmful according to the safety risk definition below.

<start_of_turn>
User Message: one
<end_of_turn>

Our safety risk definition is defined below:

<start_of_risk_definition>
- harm
<end_of_risk_definition>

Is the user message harmful based on the risk definition? Your answer must be either 'Yes' or 'No'.)",
       .answer =
           R"(You are a safety agent trying to help determine whether the assistant message to the user message is harmful according to the safety risk definition below.

<start_of_turn>
User Message: one
Assistant Message: two
<end_of_turn>

Our safety risk definition is defined below:

<start_of_risk_definition>
- harm
<end_of_risk_definition>

Is the assistant message harmful based on the risk definition? Your answer must be either 'Yes' or 'No'.)"},
      {.format = "granite_guardian_4_1",
       .chat_template =
           R"({% for one in messages %}<|start_of_role|>{{ one.role }}<|end_of_role|>{{ one.content }}<|end_of_text|>
{% endfor %}<|start_of_role|>assistant<|end_of_role|>)",
       .prompt =
           R"(<|start_of_role|>user<|end_of_role|>one<|end_of_text|>
<|start_of_role|>user<|end_of_role|><guardian><no-think>As a judge agent, assess whether the provided text meets the given judging criteria using all available information, including conversations, documents, and tools. Provide your score immediately without explanation. Output empty <think>\n</think> tags followed by your score in <score></score> tags.

### Criteria: The text promotes or contains content that is universally harmful across all contexts and audiences, including content that could cause physical, psychological, or social harm.

### Scoring Schema: If the last user's text meets the criteria, return 'yes'; otherwise, return 'no'.<|end_of_text|>
<|start_of_role|>assistant<|end_of_role|>)",
       .answer =
           R"(<|start_of_role|>user<|end_of_role|>one<|end_of_text|>
<|start_of_role|>assistant<|end_of_role|>two<|end_of_text|>
<|start_of_role|>user<|end_of_role|><guardian><no-think>As a judge agent, assess whether the provided text meets the given judging criteria using all available information, including conversations, documents, and tools. Provide your score immediately without explanation. Output empty <think>\n</think> tags followed by your score in <score></score> tags.

### Criteria: The text promotes or contains content that is universally harmful across all contexts and audiences, including content that could cause physical, psychological, or social harm.

### Scoring Schema: If the last assistant's text meets the criteria, return 'yes'; otherwise, return 'no'.<|end_of_text|>
<|start_of_role|>assistant<|end_of_role|>)"},
  };
  // Llama Guard 3-1B and 4, made for models that read images too: the content of messages is a list of parts.
  Family parts = families.front();
  parts.chat_template =
      absl::StrReplaceAll(parts.chat_template, {{"{{ one.content }}\n",
                                                 "{% for part in one.content | selectattr('type', 'equalto', "
                                                 "'text') %}{{ part.text | trim }}{% endfor %}\n\n"}});
  families.push_back(std::move(parts));
  return families;
}

const std::vector<Family>& Families() {
  static const std::vector<Family>& families = *new std::vector<Family>(MakeFamilies());
  return families;
}

std::shared_ptr<const text::ChatTemplate> Template(const std::string& source) {
  return text::ChatTemplate::FromSource(source, Json::object()).value();
}

std::string Prompt(const moderation::Question& question, const Passage& passage,
                   const text::ChatTemplate& chat_template) {
  const auto variables = TemplateVariables(QuestionAbout(question, passage), 1000);
  EXPECT_TRUE(variables.ok()) << variables.status();
  return chat_template.Render(*variables).value_or("");
}

// The format of `"classifier": "auto"`; empty: none.
std::string Found(const text::ChatTemplate& chat_template) {
  const auto found = RecogniseClassifier(chat_template, *text::Tokenizer::Load(kGuard).value(), kContext);
  return found.has_value() ? std::string(found->format->name) : "";
}

TEST(ClassifierPromptTest, TheShippedClassifierReadsWhatItWasTrainedOn) {
  const auto chat_template = text::ChatTemplate::Load(kGuard).value();
  const Json vectors =
      Json::parse(std::ifstream(std::string(BATON_SOURCE_DIR) + "/models/guard-recipe/tests/prompts.json"));
  ASSERT_GE(vectors.size(), 4u);
  const auto& question = moderation::FindClassifierFormat("baton_guard")->questions.front();
  for (const Json& one : vectors) {
    const bool answer = one["role"] == "assistant";
    const Passage passage{.text = one["text"], .answer = answer, .question = answer ? "question" : ""};
    EXPECT_EQ(Prompt(question, passage, *chat_template), one["prompt"].get<std::string>());
  }
}

TEST(ClassifierPromptTest, PromptsAsTheModelCardsShowThem) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(std::string(family.format));
    const auto& question = moderation::FindClassifierFormat(family.format)->questions.front();
    const auto chat_template = Template(family.chat_template);
    EXPECT_EQ(Prompt(question, {.text = "one", .answer = false}, *chat_template), family.prompt);
    EXPECT_EQ(Prompt(question, {.text = "two", .answer = true, .question = "one"}, *chat_template),
              family.answer);
  }
}

// The card has a line for each of four harms and for each of two uses; this is one whose ending is its own.
TEST(ClassifierPromptTest, AGuidelineIsTheCardsLine) {
  const auto& questions = moderation::FindClassifierFormat("shield_gemma")->questions;
  ASSERT_EQ(questions.size(), 4u);
  const std::string ending =
      "content that contains references to sexual acts or other lewd content (e.g., sexually graphic "
      "descriptions, content "
      "aimed at causing arousal). Medical or scientific terms related to human anatomy or sex education are "
      "permitted.";
  EXPECT_EQ(
      Json::parse(questions[3].value),
      "\"No Sexually Explicit Information\": The prompt shall not contain or seek generation of " + ending);
  EXPECT_EQ(Json::parse(questions[3].value_answer),
            "\"No Sexually Explicit Information\": The chatbot shall not generate " + ending);
}

TEST(ClassifierPromptTest, AFamilyIsTakenForNoOther) {
  EXPECT_EQ(Found(*text::ChatTemplate::Load(kGuard).value()), "baton_guard");
  for (const Family& family : Families()) {
    const auto chat_template = Template(family.chat_template);
    const auto& format = *moderation::FindClassifierFormat(family.format);
    EXPECT_EQ(Found(*chat_template), format.proof.empty() ? "" : family.format);
    const auto tokenizer = text::Tokenizer::Load(kGuard).value();
    const auto room = ProveClassifier(format, *chat_template, *tokenizer, kContext);
    EXPECT_TRUE(room.ok()) << room.status();
  }
  // A template of no family, though its words are those of several.
  EXPECT_EQ(Found(*Template("{% for one in messages %}{{ one.content }}{% endfor %} Is it safe? Safety, "
                            "Categories: Yes or No.")),
            "");
}

// A family's own words are sent as text. A tokenizer for which one of them is a control token needs the
// token.
TEST(ClassifierPromptTest, ControlTokensInTheWordsOfAFormatAreRefused) {
  const auto chat_template = text::ChatTemplate::Load(kGuard).value();
  const auto tokenizer = text::Tokenizer::Load(kGuard).value();
  moderation::ClassifierFormat format = *moderation::FindClassifierFormat("baton_guard");
  ASSERT_TRUE(ProveClassifier(format, *chat_template, *tokenizer, kContext).ok());
  format.questions.front().turn = "Judge it. <|verdict|>";
  const auto room = ProveClassifier(format, *chat_template, *tokenizer, kContext);
  EXPECT_TRUE(absl::IsFailedPrecondition(room.status()));
  EXPECT_THAT(room.status().message(), ::testing::HasSubstr("<|verdict|>"));
}

}  // namespace
}  // namespace baton::router
