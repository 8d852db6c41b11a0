// Results of the Python library (make_tokenizers.py) for text and random ids, against ours.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/golden/text/golden_files.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

std::vector<TokenId> Ids(const Json& json) {
  std::vector<TokenId> ids;
  for (const Json& id : json) ids.emplace_back(id.get<int32_t>());
  return ids;
}

class TokenizerGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file(kFolder + "tokenizers.json");
    golden_ = Json::parse(file).at(GetParam());
    auto tokenizer = Tokenizer::Load(kFolder + "tokenizers/" + GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *tokenizer;
  }

  Json golden_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(TokenizerGoldenTest, HasTheVocabulary) {
  EXPECT_EQ(tokenizer_->vocabulary(), golden_["vocabulary"].get<int64_t>());
}

TEST_P(TokenizerGoldenTest, EncodesTheSameIds) {
  ASSERT_GE(golden_["encoded"].size(), 20u);
  for (const Json& one : golden_["encoded"]) {
    const std::string text = one["text"];
    SCOPED_TRACE(text);
    auto plain = tokenizer_->Encode(text, /*add_special_tokens=*/false);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(*plain, Ids(one["ids"]));
    auto with_special = tokenizer_->Encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(with_special.ok()) << with_special.status();
    EXPECT_EQ(*with_special, Ids(one["ids_with_special"]));
  }
}

TEST_P(TokenizerGoldenTest, DecodesTheSameText) {
  for (const Json& one : golden_["encoded"]) {
    SCOPED_TRACE(one["text"].get<std::string>());
    const std::vector<TokenId> ids = Ids(one["ids_with_special"]);
    auto text = tokenizer_->Decode(ids, /*keep_special=*/false);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, one["decoded"].get<std::string>());
    text = tokenizer_->Decode(ids, /*keep_special=*/true);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, one["decoded_keep_special"].get<std::string>());
  }
}

TEST_P(TokenizerGoldenTest, DecodesRandomIds) {
  ASSERT_GE(golden_["decoded"].size(), 20u);
  for (const Json& one : golden_["decoded"]) {
    auto text = tokenizer_->Decode(Ids(one["ids"]), /*keep_special=*/true);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, one["text"].get<std::string>()) << one["ids"];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGoldenTest,
                         testing::Values("llama3_like", "qwen_like", "llama2_like", "metaspace_like",
                                         "wordpiece_like"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton::text
