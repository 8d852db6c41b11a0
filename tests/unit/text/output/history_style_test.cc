#include "text/output/history_style.h"

#include <gtest/gtest.h>

#include <fstream>
#include <ostream>
#include <sstream>
#include <string>

namespace baton::output {

void PrintTo(const HistoryStyle& style, std::ostream* out) {
  *out << "system " << style.system << ", late " << style.late_system << ", raw " << style.raw_arguments;
}

namespace {

HistoryStyle StyleOfSource(const std::string& source) {
  const auto chat_template =
      text::ChatTemplate::FromSource(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  return HistoryStyleOf(**chat_template);
}

// A file below the tests' folder.
HistoryStyle StyleOfFile(const std::string& file) {
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/tests/" + file);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << file;
  return StyleOfSource(text.str());
}

constexpr char kEveryTurn[] =
    "{%- for m in messages -%}{{ '<' ~ m.role ~ '>' ~ m.content }}"
    "{%- for c in m.tool_calls or [] -%}{{ c.function.arguments }}{%- endfor -%}"
    "{{ '<end>' }}{%- endfor -%}";

TEST(HistoryStyleTest, ATemplateThatWritesEveryTurnTakesAll) {
  EXPECT_EQ(StyleOfSource(kEveryTurn),
            (HistoryStyle{.system = true, .late_system = true, .raw_arguments = true}));
}

TEST(HistoryStyleTest, ARefusalOrAChangeOfWhatWasBeforeIsNoPlace) {
  const std::string raises =
      "{%- if messages[1:] | selectattr('role', 'equalto', 'system') | list -%}"
      "{{ raise_exception('no') }}{%- endif -%}";
  EXPECT_EQ(StyleOfSource(raises + kEveryTurn),
            (HistoryStyle{.system = true, .late_system = false, .raw_arguments = true}));
  const std::string none =
      "{%- if messages | selectattr('role', 'equalto', 'system') | list -%}"
      "{{ raise_exception('no') }}{%- endif -%}";
  EXPECT_EQ(StyleOfSource(none + kEveryTurn),
            (HistoryStyle{.system = false, .late_system = false, .raw_arguments = true}));
  // All of them go to the beginning.
  const std::string gathered =
      "{%- for m in messages if m.role == 'system' -%}{{ m.role ~ m.content }}{%- endfor -%}"
      "{%- for m in messages if m.role != 'system' -%}{{ m.role ~ m.content }}{%- endfor -%}";
  EXPECT_EQ(StyleOfSource(gathered), (HistoryStyle{.system = true}));
  // Left out without a word.
  const std::string left_out =
      "{%- for m in messages -%}{%- if m.role != 'system' or loop.first -%}{{ m.role ~ m.content }}{%- endif "
      "-%}"
      "{%- endfor -%}";
  EXPECT_EQ(StyleOfSource(left_out), (HistoryStyle{.system = true}));
  // A question takes the place of the last instruction.
  const std::string moved =
      "{%- for m in messages -%}{%- if m.role != 'system' or loop.first or loop.last -%}"
      "{{ m.role ~ m.content }}{%- endif -%}{%- endfor -%}";
  EXPECT_EQ(StyleOfSource(moved), (HistoryStyle{.system = true}));
  // The last turn is always written in another way, whoever goes on.
  const std::string last =
      "{%- for m in messages -%}{{ m.role ~ m.content ~ ('!' if loop.last) }}{%- endfor -%}";
  EXPECT_EQ(StyleOfSource(last), (HistoryStyle{.system = true, .late_system = true}));
  // All but a user are the model, or a tool.
  for (const std::string other : {"assistant", "tool"}) {
    const std::string taken =
        "{%- for m in messages -%}{{ (m.role if m.role in ['user', 'assistant'] else '" + other +
        "') ~ m.content }}{%- endfor -%}";
    EXPECT_FALSE(StyleOfSource(taken).late_system) << other;
  }
}

TEST(HistoryStyleTest, ATemplateForChatsWithToolsAloneIsAskedWithTools) {
  const auto chat_template = text::ChatTemplate::FromSources({.chat = "", .tool_use = kEveryTurn}, {});
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  EXPECT_EQ(HistoryStyleOf(**chat_template),
            (HistoryStyle{.system = true, .late_system = true, .raw_arguments = true}));
}

TEST(HistoryStyleTest, ArgumentsInQuotesOrByMemberAreNotRaw) {
  const std::string quoted =
      "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}{{ c.function.arguments | tojson }}"
      "{%- endfor -%}{%- endfor -%}";
  EXPECT_FALSE(StyleOfSource(quoted).raw_arguments);
  const std::string members =
      "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}{%- for k, v in "
      "c.function.arguments.items() "
      "-%}{{ k ~ v }}{%- endfor -%}{%- endfor -%}{%- endfor -%}";
  EXPECT_FALSE(StyleOfSource(members).raw_arguments);
}

TEST(HistoryStyleTest, OfTemplatesInUse) {
  const auto shipped = text::ChatTemplate::Load(std::string(BATON_SOURCE_DIR) + "/models/baton-tiny");
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  EXPECT_EQ(HistoryStyleOf(**shipped), (HistoryStyle{.system = true, .raw_arguments = true}));
  constexpr HistoryStyle kFirstAlone = {.system = true},
                         kAll = {.system = true, .late_system = true, .raw_arguments = true},
                         kLate = {.system = true, .late_system = true};
  const std::pair<const char*, HistoryStyle> files[] = {
      {"golden/text/templates/llama3_style.jinja", kLate},
      {"golden/text/templates/mistral_style.jinja", kFirstAlone},
      {"golden/text/templates/qwen_style.jinja", kAll},
      {"unit/text/output/templates/deepseek_v31.jinja", {.raw_arguments = true}},
      {"unit/text/output/templates/glm45.jinja", kLate},
      {"unit/text/output/templates/gpt_oss.jinja", kLate},
      {"unit/text/output/templates/kimi_k2.jinja", kAll},
      {"unit/text/output/templates/mistral_v11.jinja", {}},
      {"unit/text/output/templates/qwen3_coder.jinja", kLate},
      {"unit/text/output/templates/qwen3_thinking.jinja", kAll},
      {"unit/text/output/templates/r1_distill.jinja", {.raw_arguments = true}},
  };
  for (const auto& [file, style] : files) EXPECT_EQ(StyleOfFile(file), style) << file;
}

}  // namespace
}  // namespace baton::output
