// Texts under each name of a pre-tokenizer, against the ids that llama.cpp itself makes of them
// (make_pretokenizers.py).
#include "text/pre_tokenizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/unit/text/gguf/gguf_writer.h"
#include "text/gguf_text.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using PreJson = nlohmann::json;

const PreJson& Golden() {
  static const auto& golden = *new PreJson(PreJson::parse(
      std::ifstream(std::string(BATON_SOURCE_DIR) + "/tests/golden/gguf/data/pretokenizers.json")));
  return golden;
}

// The vocabulary under a name; empty: the file has no such key.
absl::StatusOr<std::shared_ptr<const Tokenizer>> TokenizerNamed(const std::string& name) {
  const std::vector<std::string> tokens = Golden()["tokens"];
  std::vector<int32_t> types(tokens.size(), 1);
  types[types.size() - 2] = types[types.size() - 1] = 3;
  gguf::GgufWriter writer;
  writer.Text("tokenizer.ggml.model", "gpt2");
  if (!name.empty()) writer.Text("tokenizer.ggml.pre", name);
  writer.Texts("tokenizer.ggml.tokens", tokens)
      .Integers("tokenizer.ggml.token_type", types)
      .Texts("tokenizer.ggml.merges", Golden()["merges"])
      .U32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(tokens.size() - 2));
  const std::string bytes = writer.Bytes();
  const auto document = gguf::Document::Parse(std::as_bytes(std::span(bytes)), "x.gguf");
  if (!document.ok()) return document.status();
  const auto json = TokenizerOfGguf(*document);
  if (!json.ok()) return json.status();
  return Tokenizer::FromJson(*json);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, const std::string& text, bool special) {
  std::vector<int32_t> ids;
  const auto tokens = tokenizer.Encode(text, special);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  for (const TokenId id : *tokens) ids.push_back(id.value());
  return ids;
}

TEST(PreTokenizersTest, CutTextsAsLlamaCppDoes) {
  const std::vector<std::string> texts = Golden()["texts"];
  for (const auto& [name, golden] : Golden()["names"].items()) {
    SCOPED_TRACE(name.empty() ? "no name" : name);
    const auto tokenizer = TokenizerNamed(name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    size_t compared = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (golden["ids"][i].is_null()) continue;
      SCOPED_TRACE(texts[i]);
      const std::vector<int32_t> ids = golden["ids"][i];
      EXPECT_EQ(Ids(**tokenizer, texts[i], /*special=*/false), ids);
      EXPECT_EQ(Ids(**tokenizer, texts[i], /*special=*/true).size(), ids.size() + (golden["bos"] ? 1 : 0));
      ++compared;
    }
    EXPECT_GE(compared, 35u);
  }
}

// The control: names of other patterns give other ids, so the test above tells them apart.
TEST(PreTokenizersTest, TheTextsTellThePatternsApart) {
  std::set<std::string> all;
  for (const auto& [name, golden] : Golden()["names"].items()) {
    // Texts that no name leaves out.
    std::string ids;
    for (size_t i = 0; i < golden["ids"].size(); ++i) {
      const bool everywhere = std::ranges::none_of(
          Golden()["names"], [i](const PreJson& one) { return one["ids"][i].is_null(); });
      if (everywhere) ids += golden["ids"][i].dump();
    }
    all.insert(ids);
  }
  // Two names of Llama 3's, two of Qwen's, and `default` and none are the same.
  EXPECT_EQ(all.size(), Golden()["names"].size() - 3);
}

// llama.cpp knows capitals and marks of ASCII alone: in other scripts the model's own pattern says more.
TEST(PreTokenizersTest, TekkenTellsCapitalsInAllScripts) {
  const auto tokenizer = TokenizerNamed("tekken");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto parts = [&](const std::string& whole, const std::string& first, const std::string& rest) {
    std::vector<int32_t> ids = Ids(**tokenizer, first, false);
    const std::vector<int32_t> more = Ids(**tokenizer, rest, false);
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_EQ(Ids(**tokenizer, whole, false), ids) << whole;
  };
  parts("\u00E9tat\u00C9tat", "\u00E9tat", "\u00C9tat");
  parts("\u043C\u0438\u0440\u041C\u0438\u0440", "\u043C\u0438\u0440", "\u041C\u0438\u0440");
}

TEST(PreTokenizersTest, AnUnknownNameIsRefusedWithThoseThatAreKnown) {
  const absl::Status status = TokenizerNamed("command-r").status();
  EXPECT_EQ(
      std::string(status.message()),
      "x.gguf: key \"tokenizer.ggml.pre\" is \"command-r\": known are llama-bpe, llama3, llama-v3, falcon3, "
      "smaug-bpe, tekken, qwen2, deepseek-r1-qwen, deepseek-llm, deepseek-coder, smollm, gpt-2, default");
}

}  // namespace
}  // namespace baton::text
