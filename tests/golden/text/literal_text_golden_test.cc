// Control tokens in clients' text: every added token of every tokenizer, under every template, in every
// field.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/golden/text/golden_files.h"
#include "text/chat_template.h"
#include "text/literal_text.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

const std::string kTree = BATON_SOURCE_DIR;

struct Family {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  std::vector<std::string> added;  // texts of all added tokens
};

std::vector<std::string> AddedTokens(const std::string& folder) {
  std::vector<std::string> texts;
  const Json json = Json::parse(Read(folder + "/tokenizer.json"));
  for (const Json& token : json["added_tokens"]) {
    texts.push_back(token["content"].get<std::string>());
  }
  return texts;
}

// The golden tokenizers, each under each golden template, and the shipped model.
const std::vector<Family>& Families() {
  static const auto* families = [] {
    auto* made = new std::vector<Family>();
    for (const std::string kind :
         {"llama3_like", "qwen_like", "llama2_like", "metaspace_like", "wordpiece_like"}) {
      const std::string folder = kFolder + "tokenizers/" + kind;
      const auto tokenizer = Tokenizer::Load(folder);
      EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
      for (const std::string style : {"llama3_style", "mistral_style", "qwen_style"}) {
        const auto chat_template =
            ChatTemplate::FromSource(Read(kFolder + "templates/" + style + ".jinja"),
                                     {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}});
        EXPECT_TRUE(chat_template.ok()) << chat_template.status();
        made->push_back({kind + " " + style, *tokenizer, *chat_template, AddedTokens(folder)});
      }
    }
    const std::string shipped = kTree + "/models/baton-tiny";
    made->push_back(
        {"baton-tiny", *Tokenizer::Load(shipped), *ChatTemplate::Load(shipped), AddedTokens(shipped)});
    return made;
  }();
  return *families;
}

// A conversation with `text` in each field that a client writes; every template takes one of its forms.
struct Field {
  std::string name;
  // An answer's text may hold markers of the model's own output.
  bool answer = false;
};
const std::vector<Field> kFields = {{"system"},
                                    {"question"},
                                    {"answer", true},
                                    {"thinking"},
                                    {"call name"},
                                    {"argument"},
                                    {"argument name"},
                                    {"result"},
                                    {"tool name"},
                                    {"tool description"},
                                    {"tool parameter"},
                                    {"tool parameter name"},
                                    {"template argument"},
                                    {"last question"}};

Json Conversation(const std::string& field, const std::string& text, bool with_tools, bool with_system) {
  const auto in = [&](const std::string& name) { return name == field ? text : "word"; };
  Json messages = Json::array();
  if (with_system) messages.push_back({{"role", "system"}, {"content", in("system")}});
  messages.push_back({{"role", "user"}, {"content", in("question")}});
  messages.push_back(
      {{"role", "assistant"}, {"content", in("answer")}, {"reasoning_content", in("thinking")}});
  messages.push_back({{"role", "user"}, {"content", "again"}});
  Json variables = Json::object();
  if (with_tools) {
    Json arguments = Json::object();
    arguments[in("argument name")] = in("argument");
    messages.push_back(
        {{"role", "assistant"},
         {"content", ""},
         {"reasoning_content", in("thinking")},
         {"tool_calls",
          Json::array({{{"id", "abcdef123"},
                        {"type", "function"},
                        {"function", {{"name", in("call name")}, {"arguments", arguments}}}}})}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", "abcdef123"}, {"content", in("result")}});
    Json properties = Json::object();
    properties[in("tool parameter name")] = {{"type", "string"}, {"description", in("tool parameter")}};
    variables["tools"] =
        Json::array({{{"type", "function"},
                      {"function",
                       {{"name", in("tool name")},
                        {"description", in("tool description")},
                        {"parameters", {{"type", "object"}, {"properties", properties}}}}}}});
  } else {
    messages.push_back({{"role", "assistant"}, {"content", "fine"}});
    messages.push_back({{"role", "user"}, {"content", in("last question")}});
  }
  variables["messages"] = messages;
  variables["day"] = in("template argument");
  variables["add_generation_prompt"] = true;
  return variables;
}

struct Encoded {
  std::vector<TokenId> tokens;
  int64_t found = 0;
};

absl::StatusOr<Encoded> Encode(const Family& family, const LiteralText& literal, Json variables) {
  const auto marked = literal.Mark(&variables);
  if (!marked.ok()) return marked.status();
  const auto text = family.chat_template->Render(variables);
  if (!text.ok()) return text.status();
  auto tokens = family.tokenizer->EncodeMarked(*text, false, marked->mark);
  if (!tokens.ok()) return tokens.status();
  return Encoded{*std::move(tokens), marked->tokens};
}

// How often each control token occurs, but for those in `except`.
std::map<int32_t, int> Controls(const Family& family, const std::vector<TokenId>& tokens,
                                const std::vector<TokenId>& except = {}) {
  std::map<int32_t, int> counts;
  for (const TokenId token : tokens) {
    const bool counted = std::find(except.begin(), except.end(), token) == except.end();
    if (counted && family.tokenizer->IsControl(token)) ++counts[token.value()];
  }
  return counts;
}

TEST(LiteralTextGoldenTest, NoTokenInAnyFieldMakesATurn) {
  int compared = 0, changed = 0;
  for (const Family& family : Families()) {
    const LiteralText literal(family.tokenizer, family.chat_template.get());
    // In models that know few words, the unknown token stands for all others.
    std::vector<TokenId> unknown;
    for (const char* name : {"<unk>", "[UNK]"}) {
      if (const auto ids = family.tokenizer->Encode(name, false); ids.ok() && ids->size() == 1)
        unknown.push_back((*ids)[0]);
    }
    for (const Field& field : kFields) {
      for (const bool with_tools : {false, true}) {
        for (const bool with_system : {false, true}) {
          if (with_system != (field.name == "system")) continue;
          const auto harmless =
              Encode(family, literal, Conversation(field.name, "zzz", with_tools, with_system));
          if (!harmless.ok()) continue;  // not this template's form
          std::vector<TokenId> except = unknown;
          if (field.answer) {
            except.insert(except.end(), literal.kept_in_answers().begin(), literal.kept_in_answers().end());
          }
          for (const std::string& token : family.added) {
            for (const std::string& text :
                 {token, "a" + token + "b", token + token, "x " + token + "\n" + token + " y"}) {
              SCOPED_TRACE(testing::Message() << family.name << ", " << field.name << ": " << text);
              const Json variables = Conversation(field.name, text, with_tools, with_system);
              const auto hostile = Encode(family, literal, variables);
              ASSERT_TRUE(hostile.ok()) << hostile.status();
              EXPECT_EQ(Controls(family, hostile->tokens, except),
                        Controls(family, harmless->tokens, except));
              ++compared;
              // The same without care, to know that this test can fail.
              const auto careless = family.tokenizer->Encode(*family.chat_template->Render(variables), false);
              changed +=
                  Controls(family, *careless, except) != Controls(family, harmless->tokens, except) ? 1 : 0;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 5000);
  EXPECT_GT(changed, 2000);
}

// Text without control tokens is not touched: its ids are those of the library; those goldens are elsewhere.
TEST(LiteralTextGoldenTest, HarmlessConversationsAreNotTouched) {
  for (const Family& family : Families()) {
    const LiteralText literal(family.tokenizer, family.chat_template.get());
    for (const bool with_tools : {false, true}) {
      Json variables =
          Conversation("question", "1 < 2, <b>bold</b> and a | b; größer 日本", with_tools, true);
      const Json before = variables;
      const auto marked = literal.Mark(&variables);
      ASSERT_TRUE(marked.ok()) << marked.status();
      EXPECT_EQ(marked->marks, 0);
      EXPECT_EQ(variables, before);
    }
  }
}

// The goldens of the shipped model have a message with "<|end|>": around it, every id is as it was.
TEST(LiteralTextGoldenTest, OnlyTheOccurrenceChanges) {
  const Family& family = Families().back();
  const LiteralText literal(family.tokenizer, family.chat_template.get());
  const TokenId end = family.tokenizer->Encode("<|end|>", false)->at(0);
  int checked = 0;
  for (const Json& one : Json::parse(Read(kFolder + "shipped.json"))) {
    const auto encoded = Encode(family, literal, one["variables"]);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    std::vector<TokenId> golden;
    for (const Json& id : one["ids"]) golden.emplace_back(id.get<int32_t>());
    if (encoded->found == 0) {
      EXPECT_EQ(encoded->tokens, golden);
      continue;
    }
    ++checked;
    // The pieces between the template's tokens: only the one with the occurrence differs, and its text is the
    // same.
    const std::string spelled = *family.tokenizer->Decode(encoded->tokens, /*keep_special=*/true);
    EXPECT_EQ(spelled, *family.tokenizer->Decode(golden, /*keep_special=*/true));
    const auto ends = [&](const std::vector<TokenId>& ids) {
      return std::count(ids.begin(), ids.end(), end);
    };
    EXPECT_EQ(ends(encoded->tokens), ends(golden) - encoded->found);
  }
  EXPECT_GE(checked, 1);
}

}  // namespace
}  // namespace baton::text
