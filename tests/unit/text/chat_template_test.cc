#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/time/time.h"
#include "common/base/digest.h"
#include "common/json/strict_json.h"
#include "tests/unit/text/tokenizer_folders.h"

namespace baton::text {
namespace {

using Json = ChatTemplate::Json;
using testing::HasSubstr;

Json Hello() { return {{"messages", Json::array({{{"role", "user"}, {"content", "hello"}}})}}; }

absl::StatusOr<std::string> Render(const std::string& source, const Json& variables = Hello()) {
  auto chat_template = ChatTemplate::FromSource(source, {{"bos_token", "<s>"}});
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render(variables);
}

void ExpectInvalid(const absl::StatusOr<std::string>& text, const std::string& part) {
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << text.status();
  EXPECT_THAT(text.status().message(), HasSubstr(part));
}

TEST(ChatTemplateTest, TheFileGoesBeforeTheConfig) {
  const TemporaryFolder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": "config", "bos_token": {"content": "<b>"}, "eos_token": "<e>",
                                            "add_bos_token": true, "pad_token": null})");
  auto loaded = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*(*loaded)->Render(Hello()), "config");
  folder.Write("chat_template.jinja",
               "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}");
  loaded = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*(*loaded)->Render(Hello()), "<b>hello<e>");
}

Json WithTools() {
  Json chat = Hello();
  chat["tools"] = Json::array({{{"type", "function"}}});
  return chat;
}

TEST(ChatTemplateTest, ATemplateForToolsIsTakenWhereToolsAreGiven) {
  const TemporaryFolder folder;
  const auto rendered = [&folder](const Json& chat) -> absl::StatusOr<std::string> {
    const auto loaded = ChatTemplate::Load(folder.path());
    return loaded.ok() ? (*loaded)->Render(chat) : loaded.status();
  };
  folder.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "t{{ tools|length }}"},
                                     {"name": "rag", "template": "{{"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(*rendered(Hello()), "d");
  EXPECT_EQ(*rendered(WithTools()), "t1");
  EXPECT_NE((*ChatTemplate::Load(folder.path()))->digest(), Sha256Of("d"));
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(*rendered(WithTools()), "t");
  ExpectInvalid(rendered(Hello()), "give tools");
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "t"}]})");
  ExpectInvalid(rendered(Hello()), "no entry named");
  folder.Write("tokenizer_config.json", R"({"chat_template": "old"})");
  folder.Write("chat_template.jinja", "file");
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.Write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(*rendered(Hello()), "file");
  EXPECT_EQ(*rendered(WithTools()), "tools");
  folder.Write("additional_chat_templates/tool_use.jinja", "{{");
  ExpectInvalid(rendered(Hello()), "chat_template.jinja");
}

TEST(ChatTemplateTest, FurtherTokensOfTheTokenizerAreVariables) {
  const TemporaryFolder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": "{{ image_token }}{{ boi }}{{ bos_token }}", "bos_token": "<b>",
                   "extra_special_tokens": {"image_token": "<i>", "boi": {"content": "<boi>"}}})");
  EXPECT_EQ(*(*ChatTemplate::Load(folder.path()))->Render(Hello()), "<i><boi><b>");
}

TEST(ChatTemplateTest, EveryLineEndIsALineFeed) {
  EXPECT_EQ(*Render("a\r\n{% if true %}\r\nb\rc\r\n{% endif %}\r\nd"), "a\nb\nc\nd");
}

TEST(ChatTemplateTest, SpecialTokensMayStandInAFileOfTheirOwn) {
  const TemporaryFolder folder;
  folder.Write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
  folder.Write("special_tokens_map.json", R"({"bos_token": {"content": "<b>"}, "eos_token": "<old>"})");
  folder.Write("tokenizer_config.json", R"({"eos_token": "<e>"})");
  auto loaded = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*(*loaded)->Render(Hello()), "<b><e>");
}

// Wherever it stands, and whatever the special tokens are.
TEST(ChatTemplateTest, TheDigestIsThatOfItsText) {
  const TemporaryFolder folder;
  folder.Write("tokenizer_config.json", R"({"chat_template": "{{ bos_token }}", "bos_token": "<b>"})");
  const auto loaded = ChatTemplate::Load(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->digest(), Sha256Of("{{ bos_token }}"));
  EXPECT_EQ((*loaded)->digest(), (*ChatTemplate::FromSource("{{ bos_token }}", {}))->digest());
  EXPECT_NE((*loaded)->digest(), (*ChatTemplate::FromSource("{{ bos_token }} ", {}))->digest());
}

TEST(ChatTemplateTest, MissingAndDamagedFilesAreNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(ChatTemplate::Load(folder.path()).status().code(), absl::StatusCode::kNotFound);
  folder.Write("tokenizer_config.json", "{}");
  auto loaded = ChatTemplate::Load(folder.path());
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(loaded.status().message(), HasSubstr("tokenizer_config.json"));
  for (const std::string content : {"{", "[]", "{\"chat_template\": 3}"}) {
    folder.Write("tokenizer_config.json", content);
    loaded = ChatTemplate::Load(folder.path());
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << content;
    EXPECT_THAT(loaded.status().message(), HasSubstr("tokenizer_config.json"));
  }
  folder.Write("tokenizer_config.json", "{}");
  folder.Write("chat_template.jinja", "fine\n{% if %}");
  loaded = ChatTemplate::Load(folder.path());
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(loaded.status().message(), HasSubstr(folder.path() + "/chat_template.jinja"));
  EXPECT_THAT(loaded.status().message(), HasSubstr("line 2"));
}

TEST(ChatTemplateTest, RaisesTheTemplatesOwnMessageWithItsLine) {
  const auto text = Render("\n\n{{ raise_exception('only ' ~ messages[0].role) }}");
  ExpectInvalid(text, "only user (line 3)");
  EXPECT_EQ(text.status().message(), "chat template: only user (line 3)");
  ExpectInvalid(Render("a\n{{ nope.deeper.still }}"), "line 2");
  ExpectInvalid(Render("{{ 1 | nofilter }}"), "nofilter");
}

TEST(ChatTemplateTest, RunawayTemplatesEnd) {
  ExpectInvalid(
      Render("{% for i in range(90000) %}{% for j in range(90000) %}{{ j }}{% endfor %}{% endfor %}"),
      "instructions");
  ExpectInvalid(Render("{% macro again(n) %}{{ again(n + 1) }}{% endmacro %}{{ again(0) }}"), "recursion");
  EXPECT_FALSE(Render("{% set x = 'y' * 100000000000 %}").ok());
  EXPECT_FALSE(Render("{{ " + std::string(100000, '(')).ok());
  for (const size_t length : {4000, 100000}) {
    for (const std::string link : {"-", "not ", "1+", "a.", "a|b|"}) {
      std::string chain = "{{ ";
      while (chain.size() < length) chain += link;
      Render(chain + "1 }}").status().IgnoreError();
    }
  }
  ExpectInvalid(Render("a\n{{ '}}' ~ " + std::string(100000, '-') + "1 }}"), "(line 2)");
  std::string deep;
  for (int i = 0; i < 20000; ++i) deep += "{% if true %}";
  EXPECT_FALSE(Render(deep).ok());
  const auto endless = Render("{% set x = 'y' * 10000000 %}{% for i in range(100) %}{{ x }}{% endfor %}");
  EXPECT_EQ(endless.status().code(), absl::StatusCode::kOutOfRange) << endless.status();
}

TEST(ChatTemplateTest, GenerationTagsOnlyBracket) {
  EXPECT_EQ(
      *Render("{# {% generation %} #}a {%- generation -%} b {%- endgeneration %} c{{ '{% generation %}' }}"),
      "ab c{% generation %}");
  ExpectInvalid(Render("{% generation %}never ended"), "syntax");
  const std::string prompt(20000, 'x');
  EXPECT_EQ(*Render("{{ '" + prompt + "' }}"), prompt);
}

TEST(ChatTemplateTest, TemplatesReachNothingOutside) {
  ExpectInvalid(Render("{% include '/etc/hostname' %}"), "line 1");
  ExpectInvalid(Render("{{ messages.__class__.mro() }}"), "line 1");
}

TEST(ChatTemplateTest, StrftimeNowIsTheGivenTime) {
  auto chat_template = ChatTemplate::FromSource("{{ strftime_now('%d %b %Y, %H:%M') }}", Json::object());
  ASSERT_TRUE(chat_template.ok());
  const absl::Time now = absl::FromUnixSeconds(1722000000);
  EXPECT_EQ(*(*chat_template)->Render(Hello(), now),
            absl::FormatTime("%d %b %Y, %H:%M", now, absl::LocalTimeZone()));
}

TEST(ChatTemplateTest, BadVariablesAreRefused) {
  ExpectInvalid(Render("x", Json::object()), "messages");
  ExpectInvalid(Render("x", {{"messages", "hello"}}), "messages");
  ExpectInvalid(Render("x", {{"messages", Json::array({"hello"})}}), "messages");
  Json deep = 1;
  for (int i = 0; i < 100000; ++i) deep = Json::array({std::move(deep)});
  Json variables = Hello();
  variables["messages"][0]["extra"] = std::move(deep);
  ExpectInvalid(Render("x", variables), "nested");
  ExpectInvalid(Render("x", {{"messages", Json::array({{{"role", "user"}, {"content", "\xff"}}})}}), "UTF-8");
}

TEST(ChatTemplateTest, NullMembersCountAsAbsentAndReasoningHasOneName) {
  const std::string source =
      "{{ 'content' in messages[0] }} {{ messages[0].reasoning_content }} {{ messages[0].thinking }} {{ "
      "tools is none }}";
  const Json variables = {
      {"messages", Json::array({{{"role", "assistant"}, {"content", nullptr}, {"reasoning", "why"}}})}};
  EXPECT_EQ(*Render(source, variables), "False why why True");
}

// The form in which templates of models with images read content; texts alone would be left out.
TEST(ChatTemplateTest, ATemplateThatReadsPartsAloneGetsParts) {
  const std::string parts =
      "{% for m in messages %}{{ m.role }}:{% for part in m.content | selectattr('type', 'equalto', 'text') "
      "%}"
      "{{ part.text }}{% endfor %};{% endfor %}";
  const Json chat = {{"messages", Json::array({{{"role", "user"}, {"content", "one"}},
                                               {{"role", "assistant"}, {"content", ""}},
                                               {{"role", "tool"}, {"content", "two"}}})}};
  EXPECT_EQ(*Render(parts, chat), "user:one;assistant:;tool:two;");
  EXPECT_EQ(*Render("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", chat), "onetwo");
  // One that is a list already stays what it is.
  EXPECT_EQ(
      *Render(parts, {{"messages",
                       Json::array({{{"role", "user"},
                                     {"content", Json::array({{{"type", "text"}, {"text", "three"}}})}}})}}),
      "user:three;");
  // Templates that read both forms, or texts alone, get texts.
  EXPECT_EQ(
      *Render("{% for m in messages %}{{ m.content if m.content is string else '-' }}{% endfor %}", chat),
      "onetwo");
  EXPECT_EQ(*Render("{{ messages[0].content }}", chat), "one");
  EXPECT_EQ(*Render("never a text of {{ messages | length }}", chat), "never a text of 3");
  // The template for tools is asked by itself.
  const auto both =
      ChatTemplate::FromSources({.chat = "{{ messages[0].content }}",
                                 .tool_use = "{{ tools[0].type }} {{ messages[0].content[0].text }}"},
                                Json::object());
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(*(*both)->Render(Hello()), "hello");
  EXPECT_EQ(*(*both)->Render(WithTools()), "function hello");
}

TEST(ChatTemplateTest, ServesManyThreads) {
  auto chat_template = ChatTemplate::FromSource(
      "{% for m in messages %}{% set ns = namespace(a=m.content) %}{{ ns.a | tojson }}{% endfor %}",
      Json::object());
  ASSERT_TRUE(chat_template.ok());
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Json variables = Hello();
      const std::string content = "thread " + std::to_string(t);
      variables["messages"][0]["content"] = content;
      for (int round = 0; round < 50; ++round) {
        auto text = (*chat_template)->Render(variables);
        equal[t] += text.ok() && *text == "\"" + content + "\"";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(50));
}

TEST(ChatTemplateTest, OutputIsBounded) {
  const auto chat_template =
      ChatTemplate::FromSource("{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}", {});
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto render = [&](size_t most) { return (*chat_template)->Render(Hello(), absl::UnixEpoch(), most); };
  EXPECT_EQ(render(5000)->size(), 5000u);
  EXPECT_EQ(render(4999).status().code(), absl::StatusCode::kOutOfRange) << render(4999).status();
  EXPECT_EQ(render(0).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(ChatTemplateTest, ManyVariablesTakeLinearTime) {
  Json variables = Hello();
  for (int i = 0; i < 200'000; ++i) json::Append(&variables, "key" + std::to_string(i), i);
  const auto chat_template = ChatTemplate::FromSource(
      "{{ bos_token }}{{ key199999 }}{% if tools is none %}!{% endif %}", {{"bos_token", "<s>"}});
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  EXPECT_EQ((*chat_template)->Render(variables).value(), "<s>199999!");
}

}  // namespace
}  // namespace baton::text
