// AnswerText: what becomes of a sequence's tokens on their way out: text that never splits a character, typed
// parts if the request has them, stop strings across token borders, log probabilities, and the deltas that
// carry them. It decides, token by token, whether the answer has ended. One per sequence, engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "baton/v1/generation.pb.h"
#include "common/base/ids.h"
#include "decode_service/answer_grammar.h"
#include "decode_service/answer_parts.h"
#include "engine/sampling/sampler.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace baton::decode_service {

class AnswerText {
 public:
  struct End {
    v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
    std::string stop_match;
    std::optional<TokenId> stop_token;
  };

  // `eos`: the model's own end tokens, which end the answer unless stop.ignore_eos is set. Without `parts`,
  // the answer is text.
  AnswerText(std::shared_ptr<const text::Tokenizer> tokenizer, const v1::StopConditions& stop,
             const v1::OutputOptions& output, uint32_t choice, std::span<const TokenId> eos,
             std::optional<AnswerParts::Options> parts = std::nullopt);

  // `grammar`, null if the answer is free, hears of each token, and of whether the model thinks.
  //
  // Tokens that the client has already: they shape what follows and are not sent again. Returns the end of
  // the answer if the last of them is one; INVALID_ARGUMENT if an earlier one is.
  absl::StatusOr<std::optional<End>> Resume(std::span<const TokenId> tokens,
                                            AnswerGrammar* grammar = nullptr);

  // The next token. Adds to `delta` what may leave, and says if and why the answer ends with it.
  std::optional<End> Push(const sampling::Draw& draw, uint32_t logits_digest, v1::Delta& delta,
                          AnswerGrammar* grammar = nullptr);

  // The client is told something of the logits, beside the token.
  bool shows_logits() const { return output_.logprobs() || output_.logits_digest() || output_.explain(); }
  bool digests_logits() const { return output_.logits_digest(); }
  // The client is told how each token was chosen (Draw::trace).
  bool explains() const { return output_.explain(); }
  // The token that comes next whatever the logits say, and whether there may be one after the next token, too
  // (AnswerParts).
  std::optional<TokenId> forced() const { return parts_.has_value() ? parts_->Forced() : std::nullopt; }
  bool may_force() const { return parts_.has_value() && parts_->MayForce(); }
  // The same of any later token.
  bool can_force() const { return parts_.has_value() && parts_->CanForce(); }
  // The answer ends with this token, wherever it comes.
  bool Stops(TokenId token) const { return stop_tokens_.contains(token); }
  // Null: the answer is text.
  const AnswerParts* parts() const { return parts_.has_value() ? &*parts_ : nullptr; }
  // How many top log probabilities to ask the sampler for, of the answer and of the prompt.
  std::optional<int> logprobs() const;
  int top_logprobs() const { return static_cast<int>(output_.top_logprobs()); }
  // Adds the log probability of the prompt's next token.
  void TellPrompt(const sampling::Draw& token, v1::Delta& delta) const;
  // Tokens generated, resumed ones included.
  int64_t tokens() const { return tokens_; }

 private:
  // Counts the token and adds what it lets out: text, and parts.
  std::optional<End> Advance(TokenId token, v1::Delta& delta, AnswerGrammar* grammar);
  std::optional<End> AdvanceText(TokenId token, std::string& text);
  std::optional<End> AdvanceParts(TokenId token, v1::Delta& delta);
  v1::TokenLogprob Describe(TokenId token, float logprob) const;
  v1::StepLogprobs Described(const sampling::Draw& draw) const;
  v1::SamplingTrace Described(const sampling::Trace& trace) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  const v1::OutputOptions output_;
  const uint32_t choice_;
  const int64_t max_tokens_;
  absl::flat_hash_set<TokenId> stop_tokens_;
  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
  std::optional<AnswerParts> parts_;
  std::string last_bytes_;  // of the tokens, as many as a character may begin with
  int64_t tokens_ = 0;
};

}  // namespace baton::decode_service
