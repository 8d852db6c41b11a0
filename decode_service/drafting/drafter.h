// Drafter: guesses the next tokens of one answer, so that one step can check several of them. The model draws
// its own token at each of their positions and a guess is kept only where it is that token
// (scheduler_step.cc): whatever a drafter says changes how long an answer takes, never the answer. It hears
// of every token and learns how often it is right from those alone, whether its drafts are used or not. One
// per sequence, engine thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton::decode_service::drafting {

enum class DrafterKind { kNgram, kPastAnswers, kGrammar, kDraftModel, kSelf };
inline constexpr std::array kDrafterKinds = {DrafterKind::kNgram, DrafterKind::kPastAnswers,
                                             DrafterKind::kGrammar, DrafterKind::kDraftModel,
                                             DrafterKind::kSelf};

// As in the flag --speculation and in metrics.
constexpr std::string_view NameOf(DrafterKind kind) {
  return kind == DrafterKind::kNgram         ? "ngram"
         : kind == DrafterKind::kPastAnswers ? "past-answers"
         : kind == DrafterKind::kGrammar     ? "grammar"
         : kind == DrafterKind::kDraftModel  ? "draft-model"
                                             : "self";
}

// Tokens of one draft: rows of a sequence are computed together, so longer ones pay, if less and less.
inline constexpr int64_t kMaxDraft = 24;

struct Draft {
  DrafterKind kind = DrafterKind::kNgram;
  std::vector<TokenId> tokens;
  // For each token, the chance that the model draws it and all before it: never rises.
  std::vector<double> survival;

  void Clear() {
    tokens.clear();
    survival.clear();
  }
  // Tokens of it that are expected to be kept.
  double Expected() const {
    double sum = 0;
    for (const double chance : survival) sum += chance;
    return sum;
  }
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual DrafterKind kind() const = 0;
  // The sequence is `tokens` now, prompt and answer: what it was at the last call, and more.
  virtual void Follow(std::span<const TokenId> tokens) = 0;
  // Adds at most `most` tokens that may follow `tokens`, which Follow has seen, to an empty draft.
  virtual void Guess(std::span<const TokenId> tokens, size_t most, Draft& draft) = 0;
};

}  // namespace baton::decode_service::drafting
