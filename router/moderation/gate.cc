#include "router/moderation/gate.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "router/moderation/text.h"

namespace baton::router::moderation {

Gate::Gate(bool holds, size_t room) : holds_(holds), room_(std::max(room, kLeastRoom)) {}

void Gate::AddText(std::string_view text) {
  text_ += text;
  came_ += text.size();
}

void Gate::Add(v1::Delta delta, std::string_view text, bool pending) {
  AddText(text);
  tokens_ += delta.tokens();
  // The text of a token may come with a later delta: part of a character, or what could become a stop string.
  const bool shows_more = delta.token_ids_size() > 0 || delta.logprobs_size() > 0 ||
                          delta.logits_digests_size() > 0 || delta.sampling_size() > 0 ||
                          delta.parts_size() > 0;
  held_.push_back({std::move(delta), came_ + ((text.empty() || pending) && shows_more ? 1 : 0)});
}

bool Gate::WindowFull(uint64_t unjudged) const {
  if (!holds_) return unjudged > room_ / 2;
  return tokens_ >= window_ || unjudged > room_ / 2;
}

std::optional<std::string> Gate::Next() {
  const uint64_t unjudged = came_ - judged_;
  if (out_.has_value() || unjudged == 0) return std::nullopt;
  if (!ended_ && !WindowFull(unjudged)) return std::nullopt;
  if (text_.size() > room_ && judged_ - base_ > kOverlapBytes) {
    const size_t gone = CharacterStart(text_, judged_ - base_ - kOverlapBytes);
    text_.erase(0, gone);
    base_ += gone;
  }
  // A single delta may have more than there is room for: several verdicts cover it.
  size_t length = std::min(text_.size(), room_);
  length = std::max<size_t>(CharacterStart(text_, length), judged_ - base_ + 1);
  out_ = base_ + length;
  if (*out_ == came_) tokens_ = 0;
  window_ = kWindow;
  return text_.substr(0, length);
}

void Gate::Passed() {
  BATON_CHECK(out_.has_value());
  judged_ = *std::exchange(out_, std::nullopt);
}

std::vector<v1::Delta> Gate::Take() {
  std::vector<v1::Delta> passed;
  const bool all_judged = judged_ == came_;
  // A whole window of tokens without text (special tokens, hidden thinking) shows nothing that could be
  // judged.
  const bool textless = all_judged && (ended_ || tokens_ >= kWindow);
  while (!held_.empty() && (textless || held_.front().end <= judged_)) {
    passed.push_back(std::move(held_.front().delta));
    held_.pop_front();
  }
  if (textless) tokens_ = 0;
  return passed;
}

bool Gate::Full() const { return holds_ && out_.has_value() && WindowFull(came_ - *out_); }

}  // namespace baton::router::moderation
