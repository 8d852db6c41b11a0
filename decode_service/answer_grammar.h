// AnswerGrammar: which tokens may come next in an answer under a grammar. It sleeps while the model thinks:
// then any token may come but one that would end the answer or begin a call. (With channels it does not:
// there the grammar says what thinking looks like.) Masks are computed on other threads (GrammarThreads)
// while the next step is computed; a draw whose mask is not there waits, and the batch does not. Where it
// stands follows from the tokens alone, so an answer that was begun elsewhere goes on under its grammar. One
// per sequence, engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "decode_service/grammar_threads.h"
#include "text/grammar.h"
#include "text/output/marker_table.h"
#include "text/tokenizer.h"

namespace baton::decode_service {

class AnswerGrammar {
 public:
  struct Options {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::string lark;
    // The salt of the tenant whose answer it is: tenants take turns in the work on masks.
    std::string salt;
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

  // Once, before the first mask: the model's tokens, what `lark` compiles to over them, and who computes
  // masks, which outlives the answer.
  void Begin(std::shared_ptr<const text::GrammarVocabulary> vocabulary, text::GrammarMatcher matcher,
             GrammarThreads& masks);

  // A token of the answer, before or after Begin. thinking: it is part of thinking, or a marker of it.
  // asleep: so may be what follows.
  void Push(TokenId token, bool thinking, bool asleep);

  // Lets other threads begin the work that Push left to them. Ready and Mask do so too, where they wait.
  void Wake() {
    if (masks_ != nullptr) masks_->Wake();
  }
  // True if Mask has the next mask without waiting. Waits up to `patience` for it, and takes what that took
  // from it, if this answer's masks have lately taken less. False: the pool says when it is there.
  bool Ready(absl::Duration& patience);
  // The tokens of which the next one is (text::Allows). Waits, as long as a mask may take, unless Ready.
  // INVALID_ARGUMENT, which names the grammar by its first bytes: a token did not obey it, this mask takes
  // more work than is allowed, or the answer's masks have taken more than its budget: 5 ms of a core for each
  // token, and 2 s beyond that. Valid until the next call.
  absl::StatusOr<std::span<const uint32_t>> Mask();

  // The answer has ended: another thread frees what its automaton holds, which may be 8 MiB in small pieces.
  // Nothing is called afterwards.
  void End();

  // From the next token on, text that the grammar leaves no choice about is looked for, too.
  void LookForForced() { looks_for_forced_ = true; }
  struct Forced {
    int64_t after = 0;  // tokens of the answer
    std::vector<TokenId> tokens;
  };
  // The other threads' latest result, which may be some tokens old; does not wait. The tokens are how the
  // tokenizer writes the text: the model may write it otherwise.
  Forced ForcedTokens() const;
  // Tokens of the answer.
  int64_t pushed() const { return pushed_; }

 private:
  // State of the other threads, one at a time; the engine thread looks at it between pieces of work.
  struct Work;

  // Has another thread take the tokens that wait and compute what follows.
  void Start();
  void Allow(TokenId token, bool allowed);
  // The same error, with the beginning of the grammar.
  absl::Status Named(const absl::Status& status) const;
  bool IsSpace(TokenId token) const;

  const Options options_;
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;  // null before Begin
  std::shared_ptr<Work> work_;                                 // null before Begin
  GrammarThreads* masks_ = nullptr;                            // null before Begin
  std::vector<TokenId> waiting_;                               // tokens that no work has taken
  int64_t pushed_ = 0;
  bool looks_for_forced_ = false;
  bool asleep_;
  bool thought_ = false;  // some tokens were thinking
  bool started_ = false;  // some tokens were the grammar's
  int spaces_ = 0;        // tokens between thinking and the answer
  text::TokenMask mask_;
};

}  // namespace baton::decode_service
