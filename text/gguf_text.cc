#include "text/gguf_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/quote.h"
#include "common/base/status.h"
#include "text/pre_tokenizers.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

using gguf::Document;
using GgufJson = nlohmann::json;

constexpr char kModel[] = "tokenizer.ggml.model", kPre[] = "tokenizer.ggml.pre";
constexpr char kTokens[] = "tokenizer.ggml.tokens", kTypes[] = "tokenizer.ggml.token_type";
constexpr char kScores[] = "tokenizer.ggml.scores", kMerges[] = "tokenizer.ggml.merges";
constexpr char kSpace[] = "\u2581";  // SentencePiece's mark for a space

enum TokenType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The tokens of a file, by id.
struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<int> types;
  std::unordered_map<std::string_view, int64_t> ids;  // of those that are not unused

  bool Is(int64_t id, TokenType type) const { return types[static_cast<size_t>(id)] == type; }
};

absl::StatusOr<Vocabulary> ReadVocabulary(const Document& document) {
  Vocabulary vocabulary;
  BATON_ASSIGN_OR_RETURN(vocabulary.tokens, document.Texts(kTokens));
  if (vocabulary.tokens.empty()) return document.Refuse(kTokens, "is missing or empty");
  BATON_ASSIGN_OR_RETURN(const std::vector<double> types, document.Numbers(kTypes));
  if (!types.empty() && types.size() != vocabulary.tokens.size()) {
    return document.Refuse(
        kTypes, fmt::format("has {} items, for {} tokens", types.size(), vocabulary.tokens.size()));
  }
  vocabulary.types.assign(vocabulary.tokens.size(), kNormal);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!types.empty()) {
      if (!(types[id] >= double{kNormal} && types[id] <= double{kByte})) {
        return document.Refuse(kTypes, fmt::format("is {} of token {}: not known", types[id], id));
      }
      vocabulary.types[id] = static_cast<int>(types[id]);
    }
    if (!IsUtf8(vocabulary.tokens[id])) {
      return document.Refuse(kTokens, fmt::format("has token {}, which is not UTF-8", id));
    }
    if (vocabulary.types[id] == kUnused) continue;
    if (!vocabulary.ids.emplace(vocabulary.tokens[id], static_cast<int64_t>(id)).second) {
      return document.Refuse(kTokens, fmt::format("has {} twice", Quoted(vocabulary.tokens[id])));
    }
  }
  return vocabulary;
}

// The id that tokenizer.ggml.NAME_token_id gives; nothing if it is missing.
absl::StatusOr<std::optional<int64_t>> TokenOf(const Document& document, std::string_view name,
                                               size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  if (!document.Has(key)) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const int64_t id, document.Integer(key, 0, static_cast<int64_t>(tokens) - 1));
  return id;
}

// Merges as the file has them, two tokens with a space between.
absl::StatusOr<GgufJson> MergesOf(const Document& document, const Vocabulary& vocabulary) {
  GgufJson merges = GgufJson::array();
  if (!document.Has(kMerges)) return document.Refuse(kMerges, "is missing");
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, document.Texts(kMerges));
  for (const std::string_view merge : texts) {
    // A space inside a token is written in the byte-level alphabet, so that this one is the only one.
    const size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space),
                           right = space == std::string_view::npos ? "" : merge.substr(space + 1);
    if (!vocabulary.ids.contains(left) || !vocabulary.ids.contains(right) ||
        !vocabulary.ids.contains(std::string(left) + std::string(right))) {
      return document.Refuse(
          kMerges, fmt::format("has {}, which are not two tokens that make a third", Quoted(merge)));
    }
    merges.push_back({left, right});
  }
  return merges;
}

// SentencePiece joins the two neighbours that make the token with the best score: every way to cut a token in
// two is a merge, those of better tokens first.
absl::StatusOr<GgufJson> MergesByScore(const Document& document, const Vocabulary& vocabulary) {
  BATON_ASSIGN_OR_RETURN(const std::vector<double> scores, document.Numbers(kScores));
  if (scores.size() != vocabulary.tokens.size()) {
    return document.Refuse(
        kScores, fmt::format("has {} items, for {} tokens", scores.size(), vocabulary.tokens.size()));
  }
  struct Merge {
    double score;
    int64_t whole, left, right;
  };
  std::vector<Merge> merges;
  const auto normal = [&vocabulary](std::string_view text) -> std::optional<int64_t> {
    const auto found = vocabulary.ids.find(text);
    if (found == vocabulary.ids.end() || !vocabulary.Is(found->second, kNormal)) return std::nullopt;
    return found->second;
  };
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] != kNormal) continue;
    if (scores[id] != scores[id]) return document.Refuse(kScores, fmt::format("is NaN of token {}", id));
    const std::string_view token = vocabulary.tokens[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<uint8_t>(token[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const std::optional<int64_t> left = normal(token.substr(0, cut)), right = normal(token.substr(cut));
      if (left.has_value() && right.has_value()) {
        merges.push_back({scores[id], static_cast<int64_t>(id), *left, *right});
      }
    }
  }
  std::ranges::sort(merges, [](const Merge& a, const Merge& b) {
    return std::tie(b.score, a.whole, a.left, a.right) < std::tie(a.score, b.whole, b.left, b.right);
  });
  GgufJson pairs = GgufJson::array();
  for (const Merge& merge : merges) {
    pairs.push_back({vocabulary.tokens[static_cast<size_t>(merge.left)],
                     vocabulary.tokens[static_cast<size_t>(merge.right)]});
  }
  return pairs;
}

// Puts tokens around a prompt; null: none.
absl::StatusOr<GgufJson> PostProcessor(const Document& document, const Vocabulary& vocabulary,
                                       bool bos_by_default) {
  GgufJson single = GgufJson::array(), tokens = GgufJson::object();
  const auto add = [&](std::string_view name, bool by_default) -> absl::Status {
    const std::string key = fmt::format("tokenizer.ggml.add_{}_token", name);
    BATON_ASSIGN_OR_RETURN(const bool wanted, document.Flag(key, by_default));
    if (!wanted) return absl::OkStatus();
    BATON_ASSIGN_OR_RETURN(const auto id, TokenOf(document, name, vocabulary.tokens.size()));
    if (!id.has_value()) {
      if (!document.Has(key)) return absl::OkStatus();
      return document.Refuse(key, fmt::format("is true, and there is no {}_token_id", name));
    }
    const std::string text(vocabulary.tokens[static_cast<size_t>(*id)]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    tokens[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(add("bos", bos_by_default));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  BATON_RETURN_IF_ERROR(add("eos", false));
  if (single.size() == 1) return GgufJson();
  GgufJson pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return GgufJson{
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

// Tokens that are looked for in a text before words are: control tokens are special, and those that the
// model's makers added are not.
GgufJson AddedTokens(const Vocabulary& vocabulary) {
  GgufJson added = GgufJson::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int type = vocabulary.types[id];
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    if (vocabulary.tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != kUserDefined}});
  }
  return added;
}

GgufJson ModelOf(const Vocabulary& vocabulary, GgufJson merges) {
  GgufJson ids = GgufJson::object();
  for (const auto& [token, id] : vocabulary.ids) ids[std::string(token)] = id;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(ids)},
          {"merges", std::move(merges)}};
}

absl::Status FillByteLevel(const Document& document, const Vocabulary& vocabulary, GgufJson& json) {
  std::string name;  // empty: the file is of a time before names
  if (document.Has(kPre)) {
    BATON_ASSIGN_OR_RETURN(name, document.Text(kPre));
  }
  const PreTokenizer* const pre = FindPreTokenizer(name);
  if (pre == nullptr) {
    return document.Refuse(kPre, fmt::format("is {}: known are {}", Quoted(name), PreTokenizerNames()));
  }
  BATON_ASSIGN_OR_RETURN(GgufJson merges, MergesOf(document, vocabulary));
  json["model"] = ModelOf(vocabulary, std::move(merges));
  json["model"]["ignore_merges"] = pre->whole_words;
  if (pre->compose) json["normalizer"] = {{"type", "NFC"}};
  const GgufJson byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  GgufJson steps = GgufJson::array();
  for (const std::string_view pattern : pre->patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level);
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  json["decoder"] = byte_level;
  BATON_ASSIGN_OR_RETURN(json["post_processor"], PostProcessor(document, vocabulary, pre->bos));
  return absl::OkStatus();
}

absl::Status FillSentencePiece(const Document& document, const Vocabulary& vocabulary, GgufJson& json) {
  if (document.Has("tokenizer.ggml.precompiled_charsmap")) {
    return document.Refuse("tokenizer.ggml.precompiled_charsmap", "is there: normalization is not known");
  }
  constexpr char kSpaces[] = "tokenizer.ggml.remove_extra_whitespaces";
  BATON_ASSIGN_OR_RETURN(const bool fewer_spaces, document.Flag(kSpaces, false));
  if (fewer_spaces) return document.Refuse(kSpaces, "is true: only false is known");
  BATON_ASSIGN_OR_RETURN(const bool prefix, document.Flag("tokenizer.ggml.add_space_prefix", true));
  BATON_ASSIGN_OR_RETURN(const auto unknown, TokenOf(document, "unknown", vocabulary.tokens.size()));
  BATON_ASSIGN_OR_RETURN(GgufJson merges, MergesByScore(document, vocabulary));
  json["model"] = ModelOf(vocabulary, std::move(merges));
  json["model"]["byte_fallback"] = true;
  json["model"]["fuse_unk"] = true;
  if (unknown.has_value()) json["model"]["unk_token"] = vocabulary.tokens[static_cast<size_t>(*unknown)];
  GgufJson normalizers = GgufJson::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  GgufJson decoders =
      GgufJson::array({{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  BATON_ASSIGN_OR_RETURN(json["post_processor"], PostProcessor(document, vocabulary, true));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> TokenizerOfGguf(const Document& document) {
  BATON_ASSIGN_OR_RETURN(const std::string model, document.Text(kModel));
  if (model != "gpt2" && model != "llama") {
    return document.Refuse(kModel, fmt::format("is {}: known are gpt2 and llama", Quoted(model)));
  }
  BATON_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(document));
  GgufJson json = {{"version", "1.0"},      {"truncation", nullptr},
                   {"padding", nullptr},    {"added_tokens", AddedTokens(vocabulary)},
                   {"normalizer", nullptr}, {"pre_tokenizer", nullptr}};
  BATON_RETURN_IF_ERROR(model == "gpt2" ? FillByteLevel(document, vocabulary, json)
                                        : FillSentencePiece(document, vocabulary, json));
  return json.dump();
}

absl::StatusOr<GgufTemplate> TemplateOfGguf(const Document& document) {
  constexpr char kTemplate[] = "tokenizer.chat_template";
  if (!document.Has(kTemplate)) {
    return absl::NotFoundError(fmt::format("{}: has no key {}", document.name(), kTemplate));
  }
  GgufTemplate found;
  BATON_ASSIGN_OR_RETURN(found.source, document.Text(kTemplate));
  if (constexpr char kToolUse[] = "tokenizer.chat_template.tool_use"; document.Has(kToolUse)) {
    BATON_ASSIGN_OR_RETURN(found.tool_use, document.Text(kToolUse));
  }
  found.special_tokens = nlohmann::ordered_json::object();
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, document.Texts(kTokens));
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"bos", "bos_token"}, {"eos", "eos_token"}, {"unknown", "unk_token"}, {"padding", "pad_token"}};
  for (const auto& [key, name] : kNames) {
    BATON_ASSIGN_OR_RETURN(const auto id, TokenOf(document, key, tokens.size()));
    if (!id.has_value()) continue;
    const std::string_view token = tokens[static_cast<size_t>(*id)];
    if (!IsUtf8(token)) return document.Refuse(kTokens, fmt::format("has token {}, not UTF-8", *id));
    found.special_tokens[std::string(name)] = token;
  }
  return found;
}

}  // namespace baton::text
