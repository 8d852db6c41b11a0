// Detokenizer: tokens to text, incrementally. It never emits part of a UTF-8 character, and the concatenation
// of what Push and Flush return equals Tokenizer::Decode of all tokens (an incomplete character at the end
// becomes U+FFFD). A Push costs time in proportion to its token's bytes; where only the library can decode,
// to a window of few tokens. One per sequence; one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::text {

class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool keep_special);

  // Text that became complete with this token; may be empty. An id that the vocabulary lacks has no text (a
  // model's vocabulary may be padded beyond its tokenizer's).
  std::string Push(TokenId token);
  // Returns the rest of the text.
  std::string Flush();
  // Tokens have come whose text, or a part of it, has not.
  bool pending() const { return assembler_.pending() || emitted_tokens_ < window_.size(); }

 private:
  void PushBytes(TokenId token, std::string* out);
  void PushWindow(TokenId token, std::string* out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool keep_special_;

  // Decoders that concatenate: bytes in, well-formed text out.
  Utf8Assembler assembler_;
  bool first_ = true;          // no token has given text yet
  uint32_t strip_spaces_ = 0;  // of the text's leading spaces, how many are still to be dropped

  // Other decoders: the last tokens, whose text may depend on one another.
  std::vector<uint32_t> window_;
  size_t emitted_tokens_ = 0;  // of them, those whose text is out and that only serve as context
  std::string emitted_text_;   // the text of those
};

}  // namespace baton::text
