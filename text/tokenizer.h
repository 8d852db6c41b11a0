// Tokenizer: a Hugging Face tokenizer.json, or that of a GGUF file, read by the `tokenizers` library.
// Immutable after Load; any thread. It does not know chat templates; control tokens that occur in a text are
// encoded as such, as the library does, unless the text is marked.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"

namespace baton::text {

// Limits of an encoding.
struct EncodeBounds {
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
  // Called before the work and about every 100 us during it, on the caller's thread; false ends it. Null:
  // wanted.
  std::function<bool()> wanted;
};

class Tokenizer {
 public:
  // Reads tokenizer.json from a model folder, with the tokens that its tokenizer_config.json adds, or what a
  // GGUF file says of its tokenizer. NOT_FOUND or INVALID_ARGUMENT, with the file's path. Truncation and
  // padding that the file asks for are ignored: a prompt is never truncated silently. A file whose
  // normalizer, pre-tokenizer or decoder could make more than 64 bytes of one is refused.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& folder);
  // The same from the content of the files; `config` may be empty.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json,
                                                                   std::string_view config = "");
  ~Tokenizer();

  // INVALID_ARGUMENT for text that is not UTF-8, with the byte offset. add_special_tokens: BOS and the like,
  // as the tokenizer's post-processor says. The library's regular expressions give up on a run of a million
  // white-space characters: it loses nothing then, but falls into other tokens than with Python's binding.
  // OUT_OF_RANGE as soon as there are more tokens than `bounds` allows, CANCELLED once it isn't wanted.
  // Memory beyond the text's own, about 50 times its bytes and 100 bytes per token, is that of one word where
  // words are cut by patterns (byte-level models); others take up to 500 times.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens,
                                              const EncodeBounds& bounds = {}) const;

  // The same of a text with marks, which are taken out of it: no added token is recognised across a place
  // where a mark stood, and everything else is as ever (LiteralText).
  absl::StatusOr<std::vector<TokenId>> EncodeMarked(std::string_view text, bool add_special_tokens,
                                                    char32_t mark, const EncodeBounds& bounds = {}) const;

  // Control tokens: the added tokens that are special, or whose text is more than letters, digits and white
  // space (<think>, [TOOL_CALLS]); some tokenizers have words and runs of spaces as added tokens.
  bool IsControl(TokenId token) const;
  struct Controls {
    int64_t tokens = 0;  // occurrences that do not overlap
    int64_t marks = 0;   // that MarkControls puts in
  };
  // In a text, but for those of `kept` (ascending). INVALID_ARGUMENT for text that is not UTF-8.
  absl::StatusOr<Controls> FindControls(std::string_view text, std::span<const TokenId> kept = {}) const;
  // The text with the character `mark` inside each occurrence, and inside an end that the text which follows
  // in a prompt could complete to a control token.
  absl::StatusOr<std::string> MarkControls(std::string_view text, std::span<const TokenId> kept,
                                           char32_t mark) const;

  // Tokens that the text takes at least, from its bytes alone: a byte is in no token that is longer than the
  // longest one with that byte, so n bytes of that value fill at least n / longest tokens. Says whether a
  // text is worth encoding, at the speed of memory. Where a normalizer may shorten the text first, by its
  // length. Not of models that make one unknown token of a long run: of them it is the length over that of
  // the longest token.
  int64_t LeastTokens(std::string_view text) const;

  // The text of a whole run, always UTF-8; what a Detokenizer would have streamed. INVALID_ARGUMENT for an id
  // outside the vocabulary. Equal to the library's decoding but for byte-fallback runs that are not UTF-8:
  // there the library gives up every character of the run, and we only the ill-formed ones.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> tokens, bool keep_special) const;

  // The raw bytes that one token stands for (byte-level, byte-fallback and metaspace pieces undone); may be
  // part of a character. Empty for an id that the vocabulary lacks. Valid as long as the tokenizer.
  std::string_view TokenBytes(TokenId token) const;
  // Decoding leaves it out unless asked to keep it.
  bool IsSpecial(TokenId token) const;
  // The largest id plus one, added tokens included. A few ids below may be unassigned.
  int64_t vocabulary() const;

 private:
  friend class Detokenizer;
  friend class GrammarVocabulary;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::text
