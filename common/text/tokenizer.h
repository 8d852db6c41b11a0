// Tokenizer: a Hugging Face tokenizer.json behind the `tokenizers` library. Immutable after Load; any thread.
// It does not know of chat templates; control tokens that stand in a text are encoded as such, as the library
// does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"

namespace baton::text {

class Tokenizer {
 public:
  // Reads tokenizer.json from a model folder. NOT_FOUND or INVALID_ARGUMENT, with the file's path. Truncation
  // and padding that the file asks for are ignored: a prompt is never cut in silence.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& folder);
  // The same from the file's content.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json);
  ~Tokenizer();

  // INVALID_ARGUMENT for text that is not UTF-8, with the byte offset. add_special_tokens: BOS and the like,
  // as the tokenizer's post-processor says. The library's regular expressions give up on a run of a million
  // white-space characters: it loses nothing then, but falls into other tokens than with Python's binding.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens) const;

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
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::text
