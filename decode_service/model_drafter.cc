#include "decode_service/model_drafter.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::decode_service {
namespace {

// The weights of an answer's, and of all answers', observations fade by these at a token that was not
// drafted. A model whose drafts are not worth their seconds is so tried again after some fifty tokens of an
// answer in which others of the worker do well, and after some thousands if none does.
constexpr double kFading = 0.98;
constexpr double kFadingOfAll = 0.9995;

}  // namespace

void ModelDrafter::Follow(std::span<const TokenId> tokens) {
  if (seen_ == 0) {
    seen_ = tokens.size();
    return;
  }
  for (; seen_ < tokens.size(); ++seen_) {
    if (next_ == drafted_.size()) {
      survival_.Fade(kFading);
      learnt_.Fade(kFadingOfAll);
      continue;
    }
    const bool right = drafted_[next_] == tokens[seen_];
    survival_.Observe(agreed_, right);
    learnt_.Observe(agreed_, right);
    agreed_ = right ? agreed_ + 1 : 0;
    if (right) {
      ++next_;
    } else {
      // The KV of the wrong token, and of what is behind it, is of no use.
      computed_ = std::min(computed_, static_cast<int64_t>(seen_));
      Drop();
    }
  }
}

void ModelDrafter::Guess(std::span<const TokenId> tokens, size_t most, drafting::Draft& draft) {
  BATON_CHECK(tokens.size() == seen_);
  const size_t count = std::min(most, drafted().size());
  draft.tokens.assign(drafted().begin(), drafted().begin() + static_cast<int64_t>(count));
  draft.survival = Expect(count);
}

void ModelDrafter::Push(TokenId token) {
  drafted_.erase(drafted_.begin(), drafted_.begin() + static_cast<int64_t>(next_));
  next_ = 0;
  drafted_.push_back(token);
}

void ModelDrafter::Drop() {
  computed_ = std::min(computed_, static_cast<int64_t>(seen_));
  drafted_.clear();
  next_ = 0;
}

std::vector<double> ModelDrafter::Expect(size_t tokens) const {
  std::vector<double> survival(tokens);
  double product = 1;
  for (size_t i = 0; i < tokens; ++i) survival[i] = product *= survival_.Chance(agreed_ + i);
  return survival;
}

bool ModelDrafter::Grow(int64_t tokens) {
  const int64_t missing = BlocksFor(tokens) - std::ssize(blocks_);
  if (missing <= 0) return true;
  const auto more = pool_->Allocate(missing);
  if (!more.ok()) return false;
  blocks_.insert(blocks_.end(), more->begin(), more->end());
  return true;
}

void ModelDrafter::GiveBack() {
  if (!blocks_.empty()) pool_->Release(blocks_);
  blocks_.clear();
  computed_ = 0;
}

}  // namespace baton::decode_service
