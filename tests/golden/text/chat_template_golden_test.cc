// Conversations as transformers (make_chats.py) renders them, against ours, byte for byte.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/golden/text/golden_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

TEST(ChatTemplateGoldenTest, RendersAsTransformersDoes) {
  const Json cases = Json::parse(Read(kFolder + "chats.json"));
  ASSERT_GE(cases.size(), 12u);
  int raised = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& one = cases[i];
    const std::string name = one["template"];
    SCOPED_TRACE(testing::Message() << name << ", case " << i);
    auto chat_template =
        ChatTemplate::FromSource(Read(kFolder + "templates/" + name + ".jinja"),
                                 {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}});
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    auto text = (*chat_template)->Render(one["variables"]);
    if (one.contains("error")) {
      ++raised;
      ASSERT_FALSE(text.ok()) << *text;
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(text.status().message().find(one["error"].get<std::string>()), std::string::npos)
          << text.status();
      EXPECT_NE(text.status().message().find("line "), std::string::npos) << text.status();
    } else {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, one["text"].get<std::string>());
    }
  }
  EXPECT_GE(raised, 3);
}

// The model that comes with the source, from its folder to ids and back.
TEST(ShippedModelGoldenTest, ChatsBecomeTheSameIds) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";
  const auto chat_template = ChatTemplate::Load(folder);
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json cases = Json::parse(Read(kFolder + "shipped.json"));
  ASSERT_GE(cases.size(), 5u);
  for (const Json& one : cases) {
    const auto text = (*chat_template)->Render(one["variables"]);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, one["text"].get<std::string>());
    const auto ids = (*tokenizer)->Encode(*text, /*add_special_tokens=*/false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    std::vector<int> raw;
    for (const TokenId id : *ids) raw.push_back(id.value());
    EXPECT_EQ(raw, one["ids"].get<std::vector<int>>());
    EXPECT_EQ(*(*tokenizer)->Decode(*ids, /*keep_special=*/false), one["decoded"].get<std::string>());
  }
}

}  // namespace
}  // namespace baton::text
