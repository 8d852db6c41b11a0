// The digest of a tokenizer: some changes are to be seen in it, and others are not.
#include "text/tokenizer_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/digest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/text/gguf/gguf_writer.h"
#include "tests/unit/text/tokenizer_folders.h"

namespace baton::text {
namespace {

using gguf::GgufWriter;
using DigestJson = nlohmann::ordered_json;

const std::string kShipped = BATON_SOURCE_DIR "/models/baton-tiny";

DigestJson DefinitionOf(const std::string& folder) {
  return DigestJson::parse(ReadAll(folder + "/tokenizer.json"));
}

std::string DigestOf(const DigestJson& definition) {
  const auto tokenizer = Tokenizer::FromJson(definition.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? TokenizerDigest(**tokenizer) : "";
}

// The digest of the tokenizer in a GGUF file.
std::string DigestOf(const GgufWriter& writer) {
  const TemporaryFolder folder;
  folder.Write("model.gguf", writer.Bytes());
  const auto tokenizer = Tokenizer::Load(folder.path() + "/model.gguf");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? TokenizerDigest(**tokenizer) : "";
}

// The tokens of a tokenizer.json as converters write them.
GgufWriter TokensOf(const DigestJson& definition) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto put = [&](size_t id, const std::string& token, int32_t type) {
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      types.resize(id + 1, 5);  // unused
    }
    tokens[id] = token;
    types[id] = type;
  };
  for (const auto& [token, id] : definition["model"]["vocab"].items()) {
    const bool byte = token.size() == 6 && token.starts_with("<0x");
    put(id, token, byte ? 6 : 1);
  }
  for (const DigestJson& added : definition["added_tokens"]) {
    const std::string content = added["content"];
    const bool looks_special = added["special"] || content.starts_with("<|");
    put(added["id"], content, content == "<unk>" ? 2 : looks_special ? 3 : 4);
  }
  GgufWriter writer;
  writer.Texts("tokenizer.ggml.tokens", tokens).Integers("tokenizer.ggml.token_type", types);
  return writer;
}

GgufWriter ByteLevelOf(const DigestJson& definition, const std::string& pre) {
  std::vector<std::string> merges;
  for (const DigestJson& merge : definition["model"]["merges"]) {
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufWriter writer = TokensOf(definition);
  writer.Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", pre)
      .Texts("tokenizer.ggml.merges", merges);
  return writer;
}

// The shipped model's tokens under a pre-tokenizer and a normalizer that GGUF files have a name for.
DigestJson ShippedAsQwen() {
  DigestJson definition = DefinitionOf(kShipped);
  const DigestJson qwen = DefinitionOf(FolderOf("qwen_like"));
  definition["pre_tokenizer"] = qwen["pre_tokenizer"];
  definition["normalizer"] = qwen["normalizer"];
  return definition;
}

TEST(TokenizerDigestTest, IsTheSameEachTime) {
  const std::string first = TokenizerDigest(**Tokenizer::Load(kShipped));
  EXPECT_EQ(first.size(), sizeof(Sha256Digest));
  EXPECT_EQ(first, TokenizerDigest(**Tokenizer::Load(kShipped)));
  // The order of tokens in the file, and what the loader ignores, are of no consequence.
  DigestJson definition = DefinitionOf(kShipped);
  definition["truncation"] = {
      {"direction", "Right"}, {"max_length", 512}, {"strategy", "LongestFirst"}, {"stride", 0}};
  std::vector<std::pair<std::string, DigestJson>> tokens;
  for (const auto& [token, id] : definition["model"]["vocab"].items()) tokens.emplace_back(token, id);
  std::ranges::reverse(tokens);
  definition["model"]["vocab"] = DigestJson::object();
  for (const auto& [token, id] : tokens) definition["model"]["vocab"][token] = id;
  EXPECT_EQ(first, DigestOf(definition));
  // A worker of another build tells what this one tells, or leaves WorkerInfo.tokenizer_digest empty and
  // takes another field: a digest that changes on purpose needs one.
  EXPECT_EQ(ShortDigest(first), "814d78e0");
}

struct Change {
  const char* name;
  const char* folder;  // of tests/golden/text/tokenizers; empty: the shipped model's
  std::function<void(DigestJson&)> apply;
  friend void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }
};

void Swap(DigestJson& vocabulary, int64_t a, int64_t b) {
  for (auto& [token, id] : vocabulary.items()) {
    if (id == a || id == b) id = a + b - id.get<int64_t>();
  }
}

class TokenizerDigestChangeTest : public testing::TestWithParam<Change> {};

TEST_P(TokenizerDigestChangeTest, IsSeen) {
  const std::string folder = *GetParam().folder == '\0' ? kShipped : FolderOf(GetParam().folder);
  DigestJson definition = DefinitionOf(folder);
  const std::string before = DigestOf(definition);
  DigestJson changed = definition;
  GetParam().apply(changed);
  ASSERT_NE(definition, changed);
  EXPECT_NE(before, DigestOf(changed));
}

INSTANTIATE_TEST_SUITE_P(
    , TokenizerDigestChangeTest,
    testing::Values(Change{"SwappedIdsOfTwoTokens", "",
                           [](DigestJson& definition) { Swap(definition["model"]["vocab"], 1000, 1001); }},
                    Change{"SwappedLastTokens", "wordpiece_like",
                           [](DigestJson& definition) {
                             const auto size = static_cast<int64_t>(definition["model"]["vocab"].size());
                             Swap(definition["model"]["vocab"], size - 1, size - 2);
                           }},
                    Change{"AMergeLess", "",
                           [](DigestJson& definition) {
                             auto& merges = definition["model"]["merges"];
                             merges.erase(merges.size() / 2);
                           }},
                    Change{"TwoMergesInAnotherOrder", "",
                           [](DigestJson& definition) {
                             // " t" before "he" makes " the" of " t" and "he"; "th" would be the other way.
                             auto& merges = definition["model"]["merges"];
                             std::rotate(merges.begin(), merges.begin() + 1, merges.begin() + 200);
                           }},
                    Change{"NoComposition", "qwen_like",
                           [](DigestJson& definition) { definition["normalizer"] = nullptr; }},
                    Change{"AnotherNormalizer", "qwen_like",
                           [](DigestJson& definition) { definition["normalizer"]["type"] = "NFKC"; }},
                    Change{"LowerCase", "",
                           [](DigestJson& definition) {
                             definition["normalizer"] = {{"type", "Lowercase"}};
                           }},
                    Change{"AnotherPattern", "qwen_like",
                           [](DigestJson& definition) {
                             definition["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
                                 "\\p{L}+|\\s+|\\p{N}+";
                           }},
                    Change{"AnotherControlToken", "",
                           [](DigestJson& definition) {
                             auto& added = definition["added_tokens"].back();
                             const auto id =
                                 definition["model"]["vocab"].find(added["content"].get<std::string>());
                             if (id != definition["model"]["vocab"].end()) {
                               const int64_t number = *id;
                               definition["model"]["vocab"].erase(id);
                               definition["model"]["vocab"]["<|other|>"] = number;
                             }
                             added["content"] = "<|other|>";
                           }},
                    Change{"AControlTokenMore", "llama3_like",
                           [](DigestJson& definition) {
                             DigestJson added = definition["added_tokens"].back();
                             added["id"] = added["id"].get<int64_t>() + 1;
                             added["content"] = "<|more|>";
                             definition["added_tokens"].push_back(added);
                           }},
                    Change{"NoControlToken", "",  // but an ordinary token with its text
                           [](DigestJson& definition) {
                             auto& added = definition["added_tokens"];
                             definition["model"]["vocab"][added.back()["content"].get<std::string>()] =
                                 added.back()["id"];
                             added.erase(added.size() - 1);
                           }},
                    Change{"NoTokenInFront", "llama2_like",
                           [](DigestJson& definition) { definition["post_processor"] = nullptr; }},
                    Change{"NoBytesForTheUnknown", "llama2_like",
                           [](DigestJson& definition) { definition["model"]["byte_fallback"] = false; }}),
    [](const auto& change) { return std::string(change.param.name); });

TEST(TokenizerDigestTest, AGgufFileHasThatOfItsFolder) {
  EXPECT_EQ(DigestOf(ByteLevelOf(ShippedAsQwen(), "qwen2")
                         .U32("tokenizer.ggml.bos_token_id", 1)
                         .Bool("tokenizer.ggml.add_bos_token", true)),
            DigestOf(ShippedAsQwen()));
  EXPECT_EQ(DigestOf(ByteLevelOf(DefinitionOf(FolderOf("qwen_like")), "qwen2")),
            DigestOf(DefinitionOf(FolderOf("qwen_like"))));
  DigestJson llama3 = DefinitionOf(FolderOf("llama3_like"));
  llama3["model"]["ignore_merges"] = true;  // as Llama 3's own
  EXPECT_EQ(DigestOf(ByteLevelOf(llama3, "llama-bpe").U32("tokenizer.ggml.bos_token_id", 0)),
            DigestOf(llama3));
}

// SentencePiece has a score for each token, and no merges. transformers makes merges of them: every way to
// cut a token in two, those of better tokens first, of one token those with the longest left part.
TEST(TokenizerDigestTest, AGgufFileWithScoresHasThatOfItsFolder) {
  DigestJson llama2 = DefinitionOf(FolderOf("llama2_like"));
  // Normalized, one would have a space in front, and other ids beside it: that is another tokenizer.
  for (DigestJson& added : llama2["added_tokens"]) added["normalized"] = false;
  const nlohmann::json vocabulary = llama2["model"]["vocab"];
  const GgufWriter tokens = TokensOf(llama2);
  std::vector<float> scores(532, 0);
  std::vector<std::string> by_score;
  for (const DigestJson& merge : llama2["model"]["merges"]) {
    const std::string whole = merge[0].get<std::string>() + merge[1].get<std::string>();
    float& score = scores.at(vocabulary[whole].get<size_t>());
    if (score == 0) by_score.push_back(whole);
    score = -static_cast<float>(by_score.size());
  }
  DigestJson& merges = llama2["model"]["merges"] = DigestJson::array();
  for (const std::string& whole : by_score) {
    for (size_t cut = whole.size() - 1; cut > 0; --cut) {
      const std::string left = whole.substr(0, cut), right = whole.substr(cut);
      if (vocabulary.contains(left) && vocabulary.contains(right)) merges.push_back({left, right});
    }
  }
  GgufWriter writer = tokens;
  writer.Text("tokenizer.ggml.model", "llama")
      .Floats("tokenizer.ggml.scores", scores)
      .U32("tokenizer.ggml.unknown_token_id", 0)
      .U32("tokenizer.ggml.bos_token_id", 1);
  EXPECT_EQ(DigestOf(writer), DigestOf(llama2));
}

// Converters to GGUF make special what looks so; in the folder it may be a plain added token.
TEST(TokenizerDigestTest, IsThatOfAControlTokenThatIsNotSpecial) {
  DigestJson definition = DefinitionOf(kShipped);
  const std::string before = DigestOf(definition);
  for (DigestJson& added : definition["added_tokens"]) added["special"] = !added["special"].get<bool>();
  EXPECT_EQ(DigestOf(definition), before);
}

TEST(TokenizerDigestTest, TheShortFormIsTheFirstFourBytes) {
  EXPECT_EQ(ShortDigest(std::string("\x3f\x2a\x00\xff\x01", 5)), "3f2a00ff");
  EXPECT_EQ(ShortDigest(""), "");
  EXPECT_EQ(ShortDigest(Sha256Of("")), "e3b0c442");
}

}  // namespace
}  // namespace baton::text
