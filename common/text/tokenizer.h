// Tokenizer: a Hugging Face tokenizer.json behind the `tokenizers` library. Immutable after Load; any thread.
#pragma once

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
  // Reads tokenizer.json from a model folder. Errors name the file.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& folder);
  ~Tokenizer();

  // INVALID_ARGUMENT for text that is not UTF-8, with the byte offset. add_special_tokens: BOS and the like,
  // as the tokenizer's post-processor says.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens) const;

  // INVALID_ARGUMENT for an id outside the vocabulary.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> tokens, bool keep_special) const;

  // The raw bytes that one token stands for (byte-level and byte-fallback pieces undone); may be part of a
  // character.
  std::string TokenBytes(TokenId token) const;
  bool IsSpecial(TokenId token) const;
  // Added tokens included.
  int64_t vocabulary() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::text
