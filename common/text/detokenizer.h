// Detokenizer: tokens to text, incrementally. It never emits part of a UTF-8 character, and the concatenation
// of what Push and Flush return equals Tokenizer::Decode of all tokens (a trailing incomplete character
// becomes U+FFFD). One per sequence; one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/text/tokenizer.h"

namespace baton::text {

class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool keep_special);

  // Text that became complete with this token; may be empty.
  std::string Push(TokenId token);
  // What is left at the end.
  std::string Flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool keep_special_;
  std::vector<TokenId> window_;  // tokens whose text may still depend on what follows
  size_t prefix_tokens_ = 0;     // how many of them have been emitted and serve as context
};

}  // namespace baton::text
