// Grammars over a tokenizer's tokens (llguidance, behind baton_text.h): which tokens may come next so that an
// answer obeys a grammar, and whether it may end. A GrammarVocabulary is immutable, any thread; a
// GrammarMatcher is one answer's, one thread at a time. Work on a grammar is bounded: what would take more is
// refused. Neither knows of requests, of an answer's parts, or of a model's end tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "text/tokenizer.h"

struct baton_grammar_vocabulary;
struct baton_matcher;

namespace baton::text {

// The tokens that may come next: bit i % 32 of word i / 32 is token i.
using TokenMask = std::vector<uint32_t>;

inline bool Allows(std::span<const uint32_t> mask, TokenId token) {
  const auto id = static_cast<size_t>(token.value());
  return id / 32 < mask.size() && (mask[id / 32] >> (id % 32) & 1) != 0;
}

// Where an answer stands in a grammar: a function of the grammar and the tokens since its beginning.
class GrammarMatcher {
 public:
  GrammarMatcher(GrammarMatcher&&) = default;
  GrammarMatcher& operator=(GrammarMatcher&&) = default;

  // Another one that stands at the same place and shares nothing with it.
  GrammarMatcher Fork() const;
  // The next token. INVALID_ARGUMENT if it does not obey the grammar: the matcher is of no use then.
  absl::Status Push(TokenId token);
  // Fills `mask`, which has room for all token ids, and returns whether the answer may end here. No token
  // and no end: never, as long as the mask was obeyed. INVALID_ARGUMENT: the grammar takes more work here
  // than is allowed.
  absl::StatusOr<bool> Mask(std::span<uint32_t> mask);
  // The text with which whatever may follow begins, up to the first control token; often empty. It may end
  // inside a character.
  std::string Forced() const;

 private:
  friend class GrammarVocabulary;
  struct Free {
    void operator()(baton_matcher* matcher) const;
  };
  using Handle = std::unique_ptr<baton_matcher, Free>;
  explicit GrammarMatcher(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

class GrammarVocabulary {
 public:
  // Grammars that are larger, nest deeper or repeat more (?, *, + and {number}) are refused before anything
  // is made of them: some take time with the square of these.
  static constexpr size_t kMaxGrammarBytes = size_t{64} << 10;
  static constexpr int kMaxGrammarDepth = 256;
  static constexpr int kMaxRepetitions = 2000;

  // Takes some hundred milliseconds for a large vocabulary. INVALID_ARGUMENT for a tokenizer whose text is
  // more than the text of its tokens in a row. Control tokens are no text: a grammar names them by id
  // ("<[151657]>").
  static absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> Make(const Tokenizer& tokenizer);

  // `lark`: a grammar in llguidance's dialect of Lark, with the rule "start". INVALID_ARGUMENT names the line
  // or the keyword that is wrong or not supported, or the limit that it exceeds. Up to 200 ms, on a thread of
  // its own for which the caller waits.
  absl::StatusOr<GrammarMatcher> Compile(std::string_view lark) const;

  // Words of a mask.
  size_t mask_words() const { return white_space_.size(); }
  // Tokens that are white space of ASCII and nothing else.
  std::span<const uint32_t> white_space() const { return white_space_; }

 private:
  struct Free {
    void operator()(baton_grammar_vocabulary* vocabulary) const;
  };
  using Handle = std::unique_ptr<baton_grammar_vocabulary, Free>;
  GrammarVocabulary(Handle handle, TokenMask white_space)
      : handle_(std::move(handle)), white_space_(std::move(white_space)) {}
  const Handle handle_;
  const TokenMask white_space_;
};

}  // namespace baton::text
