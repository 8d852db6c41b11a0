// SchemaRig: what a schema's grammar takes and what it lets be written, with the shipped model's tokens. For
// tests. Not thread-safe.
#pragma once

#include <memory>
#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace baton::output {

class SchemaRig {
 public:
  // schema: as JSON.
  absl::StatusOr<text::GrammarMatcher> Compile(const std::string& schema) const;

  // Returns whether `text` is a whole answer.
  bool Takes(text::GrammarMatcher matcher, const std::string& text);

  // A random answer; empty if it became too long. What closes strings, lists and objects is preferred, or few
  // would end. Adds a failure where nothing leads on.
  std::string Walk(text::GrammarMatcher matcher, std::mt19937_64& random);

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_ =
      text::GrammarVocabulary::Make(*tokenizer_).value();
  text::TokenMask mask_ = text::TokenMask(vocabulary_->mask_words());
};

}  // namespace baton::output
