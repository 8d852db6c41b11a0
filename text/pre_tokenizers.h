// The pre-tokenizers that GGUF files name: how a text is cut into words before merges join bytes to tokens.
// Each is what the models that llama.cpp gave the name to have in their own tokenizer.json. Constants, any
// thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace baton::text {

struct PreTokenizer {
  std::string_view name;
  // Regular expressions, one after the other: each cuts the pieces that the one before has left, at its
  // matches.
  std::span<const std::string_view> patterns;
  bool compose = false;      // characters (NFC), before words are cut
  bool whole_words = false;  // that are tokens are not made of merges
  bool bos = false;          // unless the file says otherwise
};

// Null if the name is not known. The empty name, of files that say none, is that of `default`.
const PreTokenizer* FindPreTokenizer(std::string_view name);

// All names, for messages: "llama-bpe, qwen2, gpt-2".
std::string PreTokenizerNames();

}  // namespace baton::text
