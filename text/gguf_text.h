// The text parts of a GGUF file: its tokenizer, as the tokenizer.json that the library would read for the
// same model, and its chat template. Known are the tokenizers "gpt2" (byte-level BPE) with the pre-tokenizers
// llama-bpe, qwen2 and gpt-2, and "llama" (BPE of SentencePiece, merges by score, unknown characters as
// bytes). All else is refused by name. Pure functions, any thread. Internal to this room.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "text/gguf/document.h"

namespace baton::text {

// The content of tokenizer.json. INVALID_ARGUMENT names the file and the key.
//
// Of what a GGUF file does not say, the models that have these tokenizers decide: qwen2 composes characters
// (NFC), llama-bpe takes a word that is in the vocabulary whole, and begins with a BOS token, as "llama"
// does, unless the file says otherwise. Tokens that are unused are left out.
absl::StatusOr<std::string> TokenizerOfGguf(const gguf::Document& document);

struct GgufTemplate {
  std::string source;
  std::string tool_use;                   // in its place where tools are given; empty: there is none
  nlohmann::ordered_json special_tokens;  // "bos_token" and the like
};
// NOT_FOUND if the file has none.
absl::StatusOr<GgufTemplate> TemplateOfGguf(const gguf::Document& document);

}  // namespace baton::text
