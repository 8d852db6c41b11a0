#include "text/config/end_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/model/model_folder.h"
#include "text/config/config.h"

namespace baton::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A folder whose config.json ends answers at 2, with a vocabulary of 150.
class EndTokensTest : public testing::Test {
 protected:
  EndTokensTest() {
    folder_.Write("tokenizer.json", R"({"version": "1.0",
        "added_tokens": [{"id": 3, "content": "<end>", "special": true}, {"content": "<late>", "id": 4},
                         {"id": 500, "content": "<beyond>"}, {"id": 2, "content": "</s>"}],
        "model": {"type": "BPE", "vocab": {"word": 5, "<end>": 6, "id": 7, "content": 8}, "merges": ["a b"]}})");
  }
  absl::StatusOr<std::vector<TokenId>> Load() const {
    const absl::StatusOr<ModelConfig> config = ModelConfig::Load(folder_.path());
    if (!config.ok()) return config.status();
    return config->eos;
  }
  void Generation(std::string_view eos) const {
    folder_.Write("generation_config.json", R"({"eos_token_id": )" + std::string(eos) + "}");
  }
  void Tokenizer(std::string_view eos) const {
    folder_.Write("tokenizer_config.json", R"({"eos_token": )" + std::string(eos) + "}");
  }

  const ModelFolder folder_{"llama-mha"};
};

TEST_F(EndTokensTest, ThatOfTheConfigIsEnough) {
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2)));
  folder_.Remove("tokenizer.json");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2)));
}

TEST_F(EndTokensTest, ThoseOfGenerationAreAdded) {
  Generation("9");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(9)));
  Generation("[9, 2, 10, 9]");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(9), TokenId(10)));
  Generation("null");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2)));
}

// -1 is how some files say "none".
TEST_F(EndTokensTest, WhatTheModelCanNotGiveIsNone) {
  for (const char* eos : {"-1", "150", "[-1, 4294967298]", "2.5", "\"9\"", "{}"}) {
    Generation(eos);
    EXPECT_THAT(*Load(), ElementsAre(TokenId(2))) << eos;
  }
  Generation("[-1, 149]");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(149)));
}

TEST_F(EndTokensTest, TheTokenizersIsAdded) {
  Tokenizer("\"<end>\"");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(3)));
  Tokenizer(R"({"__type": "AddedToken", "content": "<late>", "special": true})");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(4)));
  Tokenizer("\"</s>\"");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2)));
  Tokenizer("\"word\"");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(5))) << "of the vocabulary, not an added one";
  for (const char* eos : {"null", "\"<nowhere>\"", "\"<beyond>\"", "{}", "3"}) {
    Tokenizer(eos);
    EXPECT_THAT(*Load(), ElementsAre(TokenId(2))) << eos;
  }
}

TEST_F(EndTokensTest, OlderFoldersNameTheTokenizersInAFileOfItsOwn) {
  folder_.Write("special_tokens_map.json", R"({"eos_token": {"content": "<end>"}})");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(3)));
  Tokenizer("null");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(3)));
  Tokenizer("\"<late>\"");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2), TokenId(4)));
}

TEST_F(EndTokensTest, WithoutOneInTheConfigTheOthersCount) {
  folder_.EditConfig([](nlohmann::json& config) { config.erase("eos_token_id"); });
  EXPECT_THAT(*Load(), ElementsAre());
  Generation("[9]");
  Tokenizer("\"<end>\"");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(9), TokenId(3)));
}

TEST_F(EndTokensTest, AFileThatIsNotJsonIsNamed) {
  for (const char* file : {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    folder_.Write(file, "{");
    EXPECT_THAT(std::string(Load().status().message()), HasSubstr(std::string(file) + ": not valid JSON"));
    folder_.Write(file, "[]");
    EXPECT_THAT(std::string(Load().status().message()), HasSubstr(std::string(file) + ": not a JSON object"));
    folder_.Remove(file);
  }
  // The tokenizer's own reader says what is wrong with it.
  Tokenizer("\"<end>\"");
  folder_.Write("tokenizer.json", R"({"added_tokens": [{"id": -3, "content")");
  EXPECT_THAT(*Load(), ElementsAre(TokenId(2)));
}

}  // namespace
}  // namespace baton::model
