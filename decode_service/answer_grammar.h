// AnswerGrammar: which tokens may come next in an answer under a grammar. It sleeps while the model thinks:
// then any token may come but one that would end the answer or begin a call. (With channels it does not:
// there the grammar says what thinking looks like.) Masks are computed on another thread while the next step
// is computed; the draw waits for them. Where it stands follows from the tokens alone, so an answer that was
// begun elsewhere goes on under its grammar. One per sequence, engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/engine/loop.h"
#include "common/output/marker_table.h"
#include "common/text/grammar.h"
#include "common/text/tokenizer.h"

namespace baton::decode_service {

class AnswerGrammar {
 public:
  struct Options {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::string lark;
    // The model may begin to think before its answer.
    bool may_think = false;
    // The answer begins inside thinking.
    bool asleep = false;
    // Tokens that end the answer: allowed where the grammar is complete.
    std::vector<TokenId> ends;
    const output::MarkerTable* markers = nullptr;  // null: the answer has no parts
  };
  // INVALID_ARGUMENT: the answer could not end, or where thinking ends does not show in one token.
  static absl::Status Check(const Options& options, bool thinks);
  explicit AnswerGrammar(Options options) : options_(std::move(options)), asleep_(options_.asleep) {}

  const std::string& lark() const { return options_.lark; }

  // Once, before the first mask: the model's tokens, what `lark` compiles to over them, and the thread that
  // computes masks, which outlives the answer.
  void Begin(std::shared_ptr<const text::GrammarVocabulary> vocabulary, text::GrammarMatcher matcher,
             engine::Loop& masks);

  // A token of the answer, before or after Begin. thinking: it is part of thinking, or a marker of it.
  // asleep: so may be what follows.
  void Push(TokenId token, bool thinking, bool asleep);

  // The tokens of which the next one is (text::Allows). Waits for the other thread, as long as a mask may
  // take. INVALID_ARGUMENT: the grammar takes more work here than is allowed. Valid until the next call.
  absl::StatusOr<std::span<const uint32_t>> Mask();

 private:
  // What the other thread works on; the engine thread looks at it between jobs.
  struct Work;

  // Has the other thread take the tokens that wait and compute what follows.
  void Start();
  void Allow(TokenId token, bool allowed);
  bool IsSpace(TokenId token) const;

  const Options options_;
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;  // null before Begin
  std::shared_ptr<Work> work_;                                 // null before Begin
  engine::Loop* masks_ = nullptr;                              // null before Begin
  std::vector<TokenId> waiting_;                               // tokens that no job has taken
  bool asleep_;
  bool thought_ = false;  // some tokens were thinking
  bool started_ = false;  // some tokens were the grammar's
  int spaces_ = 0;        // tokens between thinking and the answer
  text::TokenMask mask_;
};

}  // namespace baton::decode_service
