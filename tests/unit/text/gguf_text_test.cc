#include "text/gguf_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/text/gguf/gguf_writer.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using gguf::GgufWriter;
using testing::ElementsAre;
using testing::HasSubstr;

// The goldens (tests/golden/gguf) compare ids with those of libraries; here is what each key does.
GgufWriter ByteLevel(const std::vector<std::string>& tokens = {"<s>", "</s>", "a", "b", "ab", "unused"},
                     const std::vector<int32_t>& types = {3, 3, 1, 1, 1, 5}) {
  GgufWriter writer;
  writer.Text("tokenizer.ggml.model", "gpt2")
      .Texts("tokenizer.ggml.tokens", tokens)
      .Integers("tokenizer.ggml.token_type", types);
  return writer;
}
GgufWriter Qwen() {
  GgufWriter writer = ByteLevel();
  writer.Text("tokenizer.ggml.pre", "qwen2").Texts("tokenizer.ggml.merges", {"a b"});
  return writer;
}
// Without a token for a space: one begins with the mark.
GgufWriter SentencePiece() {
  GgufWriter writer;
  writer.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "<0x7A>", "\u2581", "a", "b",
                                       "\u2581"
                                       "a",
                                       "ab"})
      .Integers("tokenizer.ggml.token_type", {2, 3, 6, 1, 1, 1, 1, 1})
      .U32("tokenizer.ggml.unknown_token_id", 0)
      .U32("tokenizer.ggml.bos_token_id", 1);
  return writer;
}

absl::StatusOr<std::string> JsonOf(const std::string& bytes) {
  const auto document = gguf::Document::Parse(std::as_bytes(std::span(bytes)), "x.gguf");
  EXPECT_TRUE(document.ok()) << document.status();
  return TokenizerOfGguf(*document);
}

std::vector<int32_t> Encode(const GgufWriter& writer, std::string_view text, bool special = true) {
  const auto json = JsonOf(writer.Bytes());
  EXPECT_TRUE(json.ok()) << json.status();
  const auto tokenizer = Tokenizer::FromJson(json.value_or(""));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  if (!tokenizer.ok()) return ids;
  const auto tokens = (*tokenizer)->Encode(text, special);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  for (const TokenId token : tokens.value_or(std::vector<TokenId>())) ids.push_back(token.value());
  return ids;
}

std::string Refusal(const GgufWriter& writer) {
  const absl::Status status = JsonOf(writer.Bytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(GgufTextTest, PutsTokensAroundAPromptAsTheFileSays) {
  EXPECT_THAT(Encode(Qwen(), "abb<s>"), ElementsAre(4, 3, 0));
  GgufWriter writer = Qwen();
  writer.U32("tokenizer.ggml.bos_token_id", 0).Bool("tokenizer.ggml.add_bos_token", true);
  EXPECT_THAT(Encode(writer, "a"), ElementsAre(0, 2));
  EXPECT_THAT(Encode(writer, "a", /*special=*/false), ElementsAre(2));
  writer.U32("tokenizer.ggml.eos_token_id", 1).Bool("tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(Encode(writer, "a"), ElementsAre(0, 2, 1));
  // Models of some tokenizers have a BOS unless the file says otherwise.
  GgufWriter llama = ByteLevel();
  llama.Text("tokenizer.ggml.pre", "llama-bpe").Texts("tokenizer.ggml.merges", {"a b"});
  llama.U32("tokenizer.ggml.bos_token_id", 0);
  EXPECT_THAT(Encode(llama, "a"), ElementsAre(0, 2));
  llama.Bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(Encode(llama, "a"), ElementsAre(2));
}

TEST(GgufTextTest, MergesByScore) {
  // The better of two tokens that share a character; "z" has its byte, and "y" nothing.
  GgufWriter writer = SentencePiece();
  writer.Floats("tokenizer.ggml.scores", {0, 0, 0, -5, -6, -7, -2, -1});
  EXPECT_THAT(Encode(writer, "abzy"), ElementsAre(1, 3, 7, 2, 0));
  writer = SentencePiece();
  writer.Floats("tokenizer.ggml.scores", {0, 0, 0, -5, -6, -7, -1, -2});
  EXPECT_THAT(Encode(writer, "ab"), ElementsAre(1, 6, 5));
  writer.Bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(Encode(writer, "ab"), ElementsAre(1, 7));
}

TEST(GgufTextTest, RefusesByName) {
  EXPECT_THAT(Refusal(GgufWriter()), HasSubstr("x.gguf: key \"tokenizer.ggml.model\" is missing"));
  EXPECT_THAT(Refusal(ByteLevel({"a", "b"}, {1})), HasSubstr("token_type\" has 1 items, for 2 tokens"));
  EXPECT_THAT(Refusal(ByteLevel({"a", "b"}, {1, 9})), HasSubstr("token_type\" is 9 of token 1: not known"));
  EXPECT_THAT(Refusal(ByteLevel({"a", "a"}, {1, 1})), HasSubstr("tokens\" has \"a\" twice"));
  EXPECT_THAT(Refusal(ByteLevel({"a", "\xC3"}, {1, 5})), HasSubstr("has token 1, which is not UTF-8"));
  EXPECT_THAT(Refusal(ByteLevel()), HasSubstr("key \"tokenizer.ggml.merges\" is missing"));
  GgufWriter writer = ByteLevel();
  writer.Text("tokenizer.ggml.pre", "gpt-2").Texts("tokenizer.ggml.merges", {"a b", "b a"});
  EXPECT_THAT(Refusal(writer), HasSubstr("merges\" has \"b a\", which are not two tokens that make a third"));
  writer = Qwen();
  writer.Bool("tokenizer.ggml.add_bos_token", true);
  EXPECT_THAT(Refusal(writer), HasSubstr("add_bos_token\" is true, and there is no bos_token_id"));
  writer.U32("tokenizer.ggml.bos_token_id", 6);
  EXPECT_THAT(Refusal(writer), HasSubstr("bos_token_id\" is 6: expected 0 to 5"));
  writer = SentencePiece();
  EXPECT_THAT(Refusal(writer), HasSubstr("scores\" has 0 items, for 8 tokens"));
  writer.Bool("tokenizer.ggml.remove_extra_whitespaces", true);
  EXPECT_THAT(Refusal(writer), HasSubstr("remove_extra_whitespaces\" is true: only false is known"));
}

TEST(GgufTextTest, ATemplateKnowsTheSpecialTokens) {
  GgufWriter writer = Qwen();
  const std::string without = writer.Bytes();
  EXPECT_TRUE(absl::IsNotFound(
      TemplateOfGguf(*gguf::Document::Parse(std::as_bytes(std::span(without)), "x.gguf")).status()));
  writer.Text("tokenizer.chat_template", "{{ bos_token }}").U32("tokenizer.ggml.bos_token_id", 0);
  const std::string bytes = writer.Bytes();
  const auto found = TemplateOfGguf(*gguf::Document::Parse(std::as_bytes(std::span(bytes)), "x.gguf"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->source, "{{ bos_token }}");
  EXPECT_EQ(found->special_tokens.dump(), R"({"bos_token":"<s>"})");
  EXPECT_EQ(found->tool_use, "");
  writer.Text("tokenizer.chat_template.tool_use", "{{ tools }}");
  const std::string tools = writer.Bytes();
  EXPECT_EQ(TemplateOfGguf(*gguf::Document::Parse(std::as_bytes(std::span(tools)), "x.gguf"))->tool_use,
            "{{ tools }}");
}

}  // namespace
}  // namespace baton::text
