// GrammarDrafter: the tokens that a request's grammar leaves no choice about. The model may still spell the
// same text with other tokens, so they are drafts like others. Engine thread.
#pragma once

#include <cstddef>
#include <span>

#include "decode_service/answer_grammar.h"
#include "decode_service/drafting/drafter.h"
#include "decode_service/drafting/survival.h"

namespace baton::decode_service {

class GrammarDrafter final : public drafting::Drafter {
 public:
  // `grammar` outlives it.
  explicit GrammarDrafter(const AnswerGrammar& grammar) : grammar_(grammar) {}

  drafting::DrafterKind kind() const override { return drafting::DrafterKind::kGrammar; }
  void Follow(std::span<const TokenId> tokens) override;
  void Guess(std::span<const TokenId> tokens, size_t most, drafting::Draft& draft) override;

 private:
  const AnswerGrammar& grammar_;
  drafting::Survival survival_{{0.9, 0.95, 0.97, 0.98, 0.98}};
  AnswerGrammar::Forced forced_;  // as it was last told
  size_t next_ = 0;               // of its tokens
  size_t seen_ = 0;
};

}  // namespace baton::decode_service
