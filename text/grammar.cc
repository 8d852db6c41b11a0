#include "text/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/base/check.h"
#include "text/rust_call.h"
#include "text/tokenizer_impl.h"

namespace baton::text {
namespace {

// How deep the brackets of a grammar nest, whatever they stand in: the library reads them recursively. In
// strings and character classes brackets need not match, so this may say too much, never too little.
int Depth(std::string_view grammar) {
  int depth = 0;
  int deepest = 0;
  for (const char c : grammar) {
    if (c == '(' || c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ')' || c == ']' || c == '}') depth = std::max(0, depth - 1);
  }
  return deepest;
}

int Repetitions(std::string_view grammar) {
  int found = 0;
  for (size_t i = 0; i < grammar.size(); ++i) {
    const char c = grammar[i];
    const bool counted = c == '{' && i + 1 < grammar.size() && absl::ascii_isdigit(grammar[i + 1]);
    found += c == '?' || c == '*' || c == '+' || counted ? 1 : 0;
  }
  return found;
}

bool IsWhiteSpace(std::string_view bytes) {
  return !bytes.empty() && std::ranges::all_of(bytes, [](char c) {
    return absl::ascii_isspace(static_cast<unsigned char>(c));
  });
}

absl::Status TooMuch(std::string_view what, int64_t there, int64_t most) {
  return absl::InvalidArgumentError(
      fmt::format("the grammar is too large to compile: {} {}, at most {} are allowed", there, what, most));
}

}  // namespace

void GrammarMatcher::Free::operator()(baton_matcher* matcher) const { CallRust(baton_matcher_free, matcher); }

GrammarMatcher GrammarMatcher::Fork() const {
  baton_matcher* fork = nullptr;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_matcher_fork, handle_.get(), &fork, &error);
  BATON_CHECK(code == BATON_TEXT_OK) << TakeError(code, error).message();
  return GrammarMatcher(Handle(fork));
}

absl::Status GrammarMatcher::Push(TokenId token) {
  baton_text_bytes error;
  const int32_t code =
      CallRust(baton_matcher_push, handle_.get(), static_cast<uint32_t>(token.value()), &error);
  return code == BATON_TEXT_OK ? absl::OkStatus() : TakeError(code, error);
}

absl::StatusOr<bool> GrammarMatcher::Mask(std::span<uint32_t> mask) {
  int32_t accepts = 0;
  baton_text_bytes error;
  const int32_t code =
      CallRust(baton_matcher_mask, handle_.get(), mask.data(), mask.size(), &accepts, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  return accepts != 0;
}

std::string GrammarMatcher::Forced() const {
  baton_text_bytes forced;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_matcher_forced, handle_.get(), &forced, &error);
  if (code == BATON_TEXT_OK) return Take(forced);
  TakeError(code, error).IgnoreError();  // a guess less
  return "";
}

absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::Make(const Tokenizer& tokenizer) {
  baton_grammar_vocabulary* handle = nullptr;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_grammar_vocabulary_new, tokenizer.impl_->handle, &handle, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  TokenMask white_space(static_cast<size_t>((tokenizer.vocabulary() + 31) / 32));
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    if (!IsWhiteSpace(tokenizer.TokenBytes(TokenId(id)))) continue;
    white_space[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
  }
  return std::shared_ptr<const GrammarVocabulary>(
      new GrammarVocabulary(Handle(handle), std::move(white_space)));
}

void GrammarVocabulary::Free::operator()(baton_grammar_vocabulary* vocabulary) const {
  CallRust(baton_grammar_vocabulary_free, vocabulary);
}

absl::StatusOr<GrammarMatcher> GrammarVocabulary::Compile(std::string_view lark) const {
  if (lark.size() > kMaxGrammarBytes) return TooMuch("bytes", std::ssize(lark), kMaxGrammarBytes);
  if (const int depth = Depth(lark); depth > kMaxGrammarDepth) {
    return TooMuch("nested brackets", depth, kMaxGrammarDepth);
  }
  if (const int repetitions = Repetitions(lark); repetitions > kMaxRepetitions) {
    return TooMuch("repetitions", repetitions, kMaxRepetitions);
  }
  baton_matcher* matcher = nullptr;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_matcher_new, handle_.get(), Data(lark), lark.size(), &matcher, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  return GrammarMatcher(GrammarMatcher::Handle(matcher));
}

}  // namespace baton::text
