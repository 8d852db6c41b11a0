#include "common/output/format_choice.h"

#include <fstream>
#include <sstream>

#include "tests/unit/output/parsed.h"

namespace baton::output {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/" + path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

FormatChoice Choose(const std::string& source) {
  const auto chat_template =
      text::ChatTemplate::FromSource(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  return ChooseFormat(QwenLike(), **chat_template);
}

TEST(ChooseFormatTest, OfTheGoldenTemplates) {
  const FormatChoice qwen = Choose(Read("tests/golden/text/templates/qwen_style.jinja"));
  EXPECT_EQ(qwen.format->name, "hermes");
  EXPECT_TRUE(qwen.tools);
  EXPECT_TRUE(qwen.thinking);
  const FormatChoice llama = Choose(Read("tests/golden/text/templates/llama3_style.jinja"));
  EXPECT_EQ(llama.format->name, "llama3_json");
  EXPECT_TRUE(llama.tools);
  EXPECT_FALSE(llama.thinking);
  const FormatChoice mistral = Choose(Read("tests/golden/text/templates/mistral_style.jinja"));
  EXPECT_EQ(mistral.format->name, "mistral");
  EXPECT_TRUE(mistral.tools);
}

TEST(ChooseFormatTest, OfTheShippedModel) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  const FormatChoice choice =
      ChooseFormat(*text::Tokenizer::Load(folder), **text::ChatTemplate::Load(folder));
  EXPECT_EQ(choice.format->name, "hermes");
  EXPECT_TRUE(choice.tools);
  EXPECT_TRUE(choice.thinking);
}

// Turns, and an assistant's calls between `open` and `close` by `call`.
std::string Template(const std::string& open, const std::string& call, const std::string& close) {
  return "{%- for m in messages -%}<|start|>{{ m.role }}\n{%- if m.reasoning_content %}<think>\n{{ "
         "m.reasoning_content "
         "}}\n</think>\n\n{% endif -%}{{ m.content }}{%- if m.tool_calls %}" +
         open + "{%- for c in m.tool_calls -%}{%- set f = c.function -%}" + call + "{%- endfor -%}" + close +
         "{%- endif -%}<|end|>{%- endfor -%}{%- if add_generation_prompt %}<|start|>assistant\n{%- endif -%}";
}

TEST(ChooseFormatTest, OfEveryLayout) {
  const std::string tagged =
      "{{ '<tool_call>\\n<function=' ~ f.name ~ '>\\n' }}{%- for k, v in f.arguments.items() -%}{{ "
      "'<parameter=' ~ k ~ "
      "'>\\n' ~ (v if v is string else v | tojson) ~ '\\n</parameter>\\n' }}{%- endfor -%}{{ "
      "'</function>\\n</tool_call>\\n' }}";
  const std::string glm =
      "{{ '<tool_call>' ~ f.name ~ '\\n' }}{%- for k, v in f.arguments.items() -%}{{ '<arg_key>' ~ k ~ "
      "'</arg_key>\\n<arg_value>' ~ (v if v is string else v | tojson) ~ '</arg_value>\\n' }}{%- endfor "
      "-%}{{ "
      "'</tool_call>\\n' }}";
  const std::string deepseek =
      "{{ '<｜tool▁call▁begin｜>' ~ f.name ~ '<｜tool▁sep｜>' ~ (f.arguments | tojson) ~ "
      "'<｜tool▁call▁end｜>' }}";
  const std::string deepseek_v3 =
      "{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' ~ f.name ~ '\\n```json\\n' ~ (f.arguments | tojson) "
      "~ "
      "'\\n```<｜tool▁call▁end｜>' }}";
  const std::string kimi =
      "{{ '<|tool_call_begin|>functions.' ~ f.name ~ ':' ~ loop.index0 ~ '<|tool_call_argument_begin|>' ~ "
      "(f.arguments | "
      "tojson) ~ '<|tool_call_end|>' }}";
  const std::string mistral = "{{ '[TOOL_CALLS]' ~ f.name ~ '[ARGS]' ~ (f.arguments | tojson) }}";
  EXPECT_EQ(Choose(Template("", tagged, "")).format->name, "qwen3_coder");
  EXPECT_EQ(Choose(Template("", glm, "")).format->name, "glm");
  EXPECT_EQ(Choose(Template("<｜tool▁calls▁begin｜>", deepseek, "<｜tool▁calls▁end｜>")).format->name,
            "deepseek_v31");
  EXPECT_EQ(Choose(Template("<｜tool▁calls▁begin｜>", deepseek_v3, "<｜tool▁calls▁end｜>")).format->name,
            "deepseek_v3");
  const FormatChoice choice =
      Choose(Template("<|tool_calls_section_begin|>", kimi, "<|tool_calls_section_end|>"));
  EXPECT_EQ(choice.format->name, "kimi_k2");
  EXPECT_TRUE(choice.thinking);
  EXPECT_EQ(Choose(Template("", mistral, "")).format->name, "mistral_v11");
}

TEST(ChooseFormatTest, NothingFitsWhatNobodyKnows) {
  const FormatChoice unknown = Choose(Template("", "CALL {{ f.name }} WITH {{ f.arguments | tojson }}", ""));
  EXPECT_FALSE(unknown.tools);
  EXPECT_TRUE(unknown.thinking) << "which it writes as others do";
  const FormatChoice plain = Choose("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  EXPECT_EQ(plain.format->name, "none");
  EXPECT_FALSE(plain.tools);
  EXPECT_FALSE(plain.thinking);
  EXPECT_FALSE(
      TryFormat(*FindFormat("mistral"), QwenLike(),
                **text::ChatTemplate::FromSource(Read("tests/golden/text/templates/qwen_style.jinja"), {}))
          .tools);
}

}  // namespace
}  // namespace baton::output
