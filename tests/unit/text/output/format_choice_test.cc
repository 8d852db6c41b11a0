#include "text/output/format_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "tests/unit/text/output/parsed.h"

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

TEST(ChooseFormatTest, OfTheShippedModel) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  const FormatChoice choice =
      ChooseFormat(*text::Tokenizer::Load(folder), **text::ChatTemplate::Load(folder));
  EXPECT_EQ(choice.format->name, "hermes");
  EXPECT_TRUE(choice.tools);
  EXPECT_TRUE(choice.thinking);
}

// A template of each family, of our own and with the structure of its models': what is expected of it.
struct Family {
  const char* file;
  const char* format;
  bool thinking;
  CallStyle calls = {};
};
constexpr Family kFamilies[] = {
    {"golden/text/templates/qwen_style", "hermes", true},
    {"unit/text/output/templates/qwen3_thinking", "hermes", true},
    {"unit/text/output/templates/qwq", "hermes", true},
    {"unit/text/output/templates/qwen3_coder", "qwen3_coder", false},
    {"unit/text/output/templates/qwen3_coder_python", "qwen3_coder", false},
    {"unit/text/output/templates/glm45", "glm", true},
    {"unit/text/output/templates/mistral_v11", "mistral_v11", true},
    {"golden/text/templates/mistral_style", "mistral", false},
    {"unit/text/output/templates/deepseek_v3", "deepseek_v3", false, {.text_arguments = true}},
    {"unit/text/output/templates/r1_distill", "deepseek_v3", true, {.text_arguments = true}},
    {"unit/text/output/templates/r1_distill_none",
     "deepseek_v3",
     true,
     {.text_arguments = true, .none_content = true}},
    {"unit/text/output/templates/deepseek_v31", "deepseek_v31", true, {.text_arguments = true}},
    {"unit/text/output/templates/kimi_k2", "kimi_k2", true},
    {"unit/text/output/templates/gpt_oss", "harmony", true},
    {"golden/text/templates/llama3_style", "llama3_json", false},
    {"unit/text/output/templates/llama_pythonic", "pythonic", false},
};

TEST(ChooseFormatTest, OfEveryFamily) {
  std::vector<std::string_view> never = {};
  for (const OutputFormat& format : Formats()) never.push_back(format.name);
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.file);
    const FormatChoice choice = Choose(Read(fmt::format("tests/{}.jinja", family.file)));
    EXPECT_EQ(choice.format->name, family.format);
    EXPECT_TRUE(choice.tools);
    EXPECT_EQ(choice.thinking, family.thinking);
    EXPECT_EQ(choice.calls, family.calls);
    std::erase(never, family.format);
  }
  EXPECT_THAT(never, testing::ElementsAre("none"));
}

// Turns, and an assistant's calls as `calls` writes them.
std::string Template(const std::string& calls) {
  return "{%- for m in messages -%}<|start|>{{ m.role }}\n{%- if m.reasoning_content %}<think>\n{{ "
         "m.reasoning_content }}\n</think>\n\n{% endif -%}{{ m.content }}{%- if m.tool_calls %}" +
         calls +
         "{%- endif -%}<|end|>{%- endfor -%}{%- if add_generation_prompt %}<|start|>assistant\n{%- endif -%}";
}
std::string Template(const std::string& open, const std::string& call, const std::string& close) {
  return Template(open + "{%- for c in m.tool_calls -%}{%- set f = c.function -%}" + call + "{%- endfor -%}" +
                  close);
}

constexpr char kHermesCall[] =
    "{{ '<tool_call>' ~ {'name': f.name, 'arguments': f.arguments} | tojson ~ '</tool_call>' }}";

// A template that writes one call of two is not one whose second call the parser loses.
TEST(ChooseFormatTest, OneCallIsEnoughOnlyWhereTheTemplateWritesNoMore) {
  EXPECT_TRUE(Choose(Template("", kHermesCall, "")).tools);
  const std::string first = "{%- set f = m.tool_calls[0].function -%}";
  EXPECT_TRUE(Choose(Template(first + kHermesCall)).tools);
  EXPECT_FALSE(Choose(Template(first + kHermesCall + "{{ m.tool_calls[1].id }}" +
                               "{%- if m.tool_calls[1] %}<tool_call>{{ m.tool_calls[1].id }}{%- endif -%}"))
                   .tools);
}

TEST(ChooseFormatTest, ArgumentsAreTextWhereAnObjectIsRefusedOrNotReadBack) {
  EXPECT_FALSE(Choose(Template("", kHermesCall, "")).calls.text_arguments);
  const FormatChoice joined = Choose(Template(
      "", "{{ '<tool_call>{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments + '}</tool_call>' }}",
      ""));
  EXPECT_EQ(joined.format->name, "hermes");
  EXPECT_TRUE(joined.tools);
  EXPECT_TRUE(joined.calls.text_arguments);
  // Also where nobody knows the format, so that the conversation can be rendered at all.
  const FormatChoice unknown = Choose(Template("", "{{ 'CALL ' + f.name + f.arguments }}", ""));
  EXPECT_FALSE(unknown.tools);
  EXPECT_TRUE(unknown.calls.text_arguments);
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
