#include "text/output/stable_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace baton::output {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kTurn[] = "{{ '<|start|>' ~ m.role ~ '\\n' }}";
constexpr char kThinking[] =
    "{%- if m.reasoning_content %}{{ '<think>' ~ m.reasoning_content ~ '</think>' }}{%- endif -%}";
constexpr char kThinkingOfTheLast[] =
    "{%- if m.reasoning_content and loop.last %}{{ '<think>' ~ m.reasoning_content ~ '</think>' }}{%- endif "
    "-%}";
constexpr char kWords[] = "{{ m.content }}";
constexpr char kCalls[] =
    "{%- for c in m.tool_calls or [] -%}{{ '<call>' ~ (c.function | tojson) }}{%- endfor -%}";

// A template whose turns are written so, with that after the generation prompt's role.
std::vector<std::string_view> Unstable(const std::string& turn, const std::string& generation = "") {
  const auto chat_template =
      text::ChatTemplate::FromSource("{%- for m in messages -%}" + turn +
                                         "{{ '<|end|>' }}{%- endfor -%}{%- if add_generation_prompt %}{{ "
                                         "'<|start|>assistant\\n" +
                                         generation + "' }}{%- endif -%}",
                                     {});
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  return UnstableHistory({.format = FindFormat("hermes"), .tools = true, .thinking = true}, **chat_template);
}

TEST(StableHistoryTest, NamesWhatALaterTurnWritesOtherwise) {
  const std::string turn = kTurn;
  EXPECT_THAT(Unstable(turn + kThinking + kWords + kCalls), IsEmpty());
  EXPECT_THAT(Unstable(turn + kThinkingOfTheLast + kWords + kCalls), ElementsAre("thinking"));
  EXPECT_THAT(Unstable(turn + kThinking + kWords + "{%- if loop.last -%}" + kCalls + "{%- endif -%}"),
              ElementsAre("tool_calls"));
  EXPECT_THAT(Unstable(turn + kThinking + "{{ m.content | upper }}" + kCalls), ElementsAre("text"));
  // An empty block in the prompt alone: no answer is found again.
  EXPECT_THAT(Unstable(turn + kThinking + kWords + kCalls, "<think></think>"),
              ElementsAre("text", "thinking", "tool_calls"));
}

TEST(StableHistoryTest, WhatTheModelDoesNotWriteIsNotLookedAt) {
  const auto chat_template = text::ChatTemplate::FromSource(
      std::string("{%- for m in messages -%}") + kTurn + kThinkingOfTheLast + kWords +
          "{%- endfor -%}{%- if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{%- endif -%}",
      {});
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  EXPECT_THAT(UnstableHistory({.format = FindFormat("none")}, **chat_template), IsEmpty());
}

// Its template leaves the thinking of earlier turns out, as Qwen3's does.
TEST(StableHistoryTest, OfTheShippedModel) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  const auto chat_template = text::ChatTemplate::Load(folder);
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  EXPECT_THAT(UnstableHistory(ChooseFormat(*text::Tokenizer::Load(folder), **chat_template), **chat_template),
              ElementsAre("thinking"));
}

}  // namespace
}  // namespace baton::output
