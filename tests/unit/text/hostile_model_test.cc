// Chat templates and tokenizers that ask for more than any real one: they are refused by name before they
// have it, and what real ones ask for is given.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/text/tokenizer_folders.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Json Conversation(size_t bytes) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", std::string(bytes, 'x')}}})}};
}

absl::StatusOr<std::string> Rendered(const std::string& source, size_t bytes = 5) {
  const auto chat_template = ChatTemplate::FromSource(source, Json::object());
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render(Conversation(bytes));
}

TEST(HostileTemplateTest, InstructionsGrowWithTheConversation) {
  const std::string loop = "{% for i in range(99999) %}{% if i > 7 %}{% endif %}{% endfor %}";
  const auto refused = Rendered(loop);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("ran for more than 2"));  // 250,000, and 100 for each of some 100 bytes
  EXPECT_EQ(*Rendered(loop, 100'000), "");
  const auto nested = Rendered("{% for i in range(99999) %}" + loop + "{% endfor %}", 1'000'000);
  EXPECT_THAT(nested.status().message(), HasSubstr("ran for more than 10000000 instructions"));
}

// The expression and what the message names.
class HostileFilterTest : public testing::TestWithParam<std::pair<std::string_view, std::string_view>> {};

TEST_P(HostileFilterTest, IsRefusedBeforeItHasMade) {
  const auto& [expression, name] = GetParam();
  const auto text = Rendered(fmt::format("\n{{{{ ({})|length }}}}", expression));
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << expression;
  EXPECT_THAT(text.status().message(), HasSubstr(fmt::format("the {} makes more than 16777216 bytes", name)))
      << expression;
  EXPECT_THAT(text.status().message(), HasSubstr("(line 2)"));
}

INSTANTIATE_TEST_SUITE_P(
    Filters, HostileFilterTest,
    testing::Values(std::pair("range(10)|batch(1000000000, 'x')|list", "filter batch"),
                    std::pair("range(10)|slice(1000000000)", "filter slice"),
                    std::pair("('a' * 30000)|replace('a', 'b' * 30000)", "filter replace"),
                    std::pair("('a' * 30000).replace('a', 'b' * 30000)", "method replace"),
                    std::pair("('a' * 30000).replace('', 'b' * 30000)", "method replace"),
                    std::pair("range(30000)|join('b' * 30000)", "filter join"),
                    std::pair("range(30000)|join(d='b' * 30000)", "filter join"),
                    std::pair("(['b' * 30000] * 30000)|join", "filter join"),
                    std::pair("(['b' * 30000] * 30000)|sum(start='')", "filter sum"),
                    std::pair("('b' * 30000).join(range(30000))", "method join"),
                    std::pair("('a\\n' * 30000)|indent(30000)", "filter indent"),
                    std::pair("('a\\n' * 30000)|indent(width=30000)", "filter indent"),
                    std::pair("'%1000000000d'|format(1)", "filter format"),
                    std::pair("'%(a)1000000000d'|format({'a': 1})", "filter format"),
                    std::pair("'{:1000000000}'.format('a')", "method format"),
                    std::pair("('{0}' * 30000).format('a' * 30000)", "method format"),
                    std::pair("([1] * 100000000)|list", "filter list"),
                    std::pair("([1] * 100000000)|sort", "filter sort"),
                    std::pair("('a' * 10000000)|list", "filter list"),
                    std::pair("('a,' * 5000000).split(',')", "method split"),
                    std::pair("('a\\n' * 5000000).splitlines()", "method splitlines"),
                    std::pair("(['a' * 30000] * 30000)|map('upper')", "filter map"),
                    std::pair("([1] * 30000)|map('replace', '1', 'b' * 30000)", "filter map")));

// A list that holds another one twice, which holds another one twice: 2^60 items as text.
TEST(HostileTemplateTest, SharedListsAreNotWrittenOut) {
  for (const std::string use : {"|upper", "|pprint", "|tojson", "|join"}) {
    const auto text = Rendered(
        "{% set ns = namespace(x=['ab']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ (ns.x" +
        use + ")|length }}");
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << use;
    EXPECT_THAT(text.status().message(), HasSubstr("more than 16777216 bytes")) << use;
  }
}

TEST(HostileTemplateTest, WhatRealTemplatesDoStays) {
  const std::vector<std::pair<std::string, std::string>> uses = {
      {"range(5)|batch(2, 'x')|list", "[[0, 1], [2, 3], [4, 'x']]"},
      {"range(5)|slice(2)|list", "[[0, 1, 2], [3, 4]]"},
      {"'aXbX'|replace('X', '--')", "a--b--"},
      {"'aXbX'.replace('X', '--', 1)", "a--bX"},
      {"range(3)|join(', ')", "0, 1, 2"},
      {"[{'a': 1}, {'a': 2}]|map(attribute='a')|join('+')", "1+2"},
      {"[{'a': 1}, {'a': 2}]|sum(attribute='a')", "3"},
      {"['a', 'b']|map('upper')|list", "['A', 'B']"},
      {"['a', 'b']|map('replace', 'a', 'c')|join", "cb"},
      {"'-'.join(['a', 'b'])", "a-b"},
      {"'a\nb'|indent(2)", "a\n  b"},
      {"'%s is %03d'|format('x', 7)", "x is 007"},
      {"'{} on 20240101 is {:>4}'.format('x', 7)", "x on 20240101 is    7"},
      {"'20240101 %d'|format(7)", "20240101 7"},
      {"'a b  c'.split()|length", "3"},
      {"'a</think>b</think>c'.split('</think>', 1)|last", "b</think>c"},
      {"'b,a'.rsplit(',', 1)|sort|join", "ab"},
      {"messages|selectattr('role', 'equalto', 'user')|list|length", "1"},
      {"messages|rejectattr('role', 'equalto', 'user')|list|length", "0"},
      {"' a '|trim", "a"},
      {"'<'|e", "&lt;"},
      {"{'b': 1, 'a': 2}|dictsort|first|first", "a"},
      {"[3, 1, 3]|unique|list", "[3, 1]"},
      {"1.5|string", "1.5"},
      {"{'a': [1]}|tojson(indent=1)", "{\n \"a\": [\n  1\n ]\n}"},
  };
  for (const auto& [expression, expected] : uses) {
    const auto text = Rendered("{{ " + expression + " }}");
    ASSERT_TRUE(text.ok()) << expression << ": " << text.status();
    EXPECT_EQ(*text, expected) << expression;
  }
  // A message of ten million bytes is as good as any.
  EXPECT_EQ(Rendered("{{ messages[0].content|replace('x', 'y')|trim }}", 10'000'000)->size(), 10'000'000u);
  EXPECT_EQ(Rendered("{{ messages[0].content.split('y', 1)|first|tojson }}", 10'000'000)->size(),
            10'000'002u);
}

Json TokenizerWith(const std::string& part, const Json& steps) {
  auto file = Json::parse(ReadAll(FolderOf("llama2_like") + "/tokenizer.json"));
  file[part] = steps;
  return file;
}

Json Sequence(const std::string& of, const Json& step, int times) {
  Json steps = Json::array();
  for (int i = 0; i < times; ++i) steps.push_back(step);
  return {{"type", "Sequence"}, {of, steps}};
}

Json Replace(const Json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

absl::Status StatusOf(const Json& file) { return Tokenizer::FromJson(file.dump()).status(); }

TEST(HostileTokenizerTest, StepsThatMultiplyAreRefused) {
  const Json letter = {{"String", "a"}}, letters = {{"String", "aa"}}, run = {{"Regex", "a*"}};
  const Json hundred = Replace(letter, std::string(100, 'a'));
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", TokenizerWith("normalizer", Sequence("normalizers", hundred, 6)).dump());
  const absl::Status refused = Tokenizer::Load(folder.path()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), folder.path() +
                                   "/tokenizer.json: normalizer: makes up to 1000000000000 bytes of one; 64 "
                                   "is the most that is accepted");

  const auto expect_refused = [](const std::string& part, const Json& steps) {
    const absl::Status status = StatusOf(TokenizerWith(part, steps));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << steps;
    EXPECT_THAT(status.message(), HasSubstr(part + ": makes up to ")) << steps;
  };
  expect_refused("decoder", Sequence("decoders", hundred, 6));
  expect_refused("normalizer", Sequence("normalizers", hundred, 40));
  expect_refused("normalizer",
                 Sequence("normalizers", Sequence("normalizers", Replace(letters, "aaaa"), 3), 3));
  expect_refused("normalizer", Sequence("normalizers", Replace(letter, "aa"), 7));
  expect_refused("normalizer", Sequence("normalizers", Replace(run, "aa"), 4));
  expect_refused("normalizer", Replace({{"String", ""}}, std::string(64, 'a')));
  expect_refused("normalizer", {{"type", "Prepend"}, {"prepend", std::string(64, 'a')}});
  expect_refused("normalizer", Sequence("normalizers", {{"type", "ByteLevel"}}, 40));
  expect_refused(
      "pre_tokenizer",
      Sequence(
          "pretokenizers",
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}},
          40));
  // SentencePiece's rules: the size of their table, which is empty, and a text of 302 bytes.
  std::string rules = "AAAAAHh4";
  for (int i = 0; i < 100; ++i) rules += "eHh4";
  expect_refused("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", rules}});
}

TEST(HostileTokenizerTest, RealStepsAreAccepted) {
  const Json letter = {{"String", "a"}};
  const std::string space = "\u2581";
  const std::vector<std::pair<std::string, Json>> steps = {
      {"normalizer", Sequence("normalizers", Replace(letter, "aa"), 6)},
      {"normalizer", Sequence("normalizers", Replace(letter, "b"), 40)},
      {"normalizer", Replace({{"String", "<tool>"}}, "[a tool of any name]")},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         Json::array({{{"type", "Prepend"}, {"prepend", space}}, Replace({{"String", " "}}, space)})}}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers", Json::array({{{"type", "NFKC"}}, Replace({{"Regex", " {2,}"}}, space)})}}},
      {"normalizer", {{"type", "NFC"}}},
      {"decoder", Sequence("decoders", Replace({{"String", space}}, " "), 40)}};
  for (const auto& [part, sequence] : steps) {
    EXPECT_TRUE(StatusOf(TokenizerWith(part, sequence)).ok()) << StatusOf(TokenizerWith(part, sequence));
  }
}

}  // namespace
}  // namespace baton::text
