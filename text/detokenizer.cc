#include "text/detokenizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

// Tokens that stay as context after their text is out, and tokens that wait at most for one character to
// complete.
constexpr size_t kContextTokens = 4;
constexpr size_t kMaxWaitingTokens = 8;

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool keep_special)
    : tokenizer_(std::move(tokenizer)),
      keep_special_(keep_special),
      strip_spaces_(tokenizer_->impl_->strip_spaces) {}

std::string Detokenizer::Push(TokenId token) {
  std::string out;
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  if (!impl.Has(token) || (!keep_special_ && impl.IsSpecial(token))) return out;
  if (impl.join == BATON_TEXT_JOIN_OPAQUE) {
    PushWindow(token, &out);
  } else {
    PushBytes(token, &out);
  }
  return out;
}

void Detokenizer::PushBytes(TokenId token, std::string* out) {
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  if (first_ && impl.join == BATON_TEXT_JOIN_BYTES_FIRST_DECODED) {
    const uint32_t id = static_cast<uint32_t>(token.value());
    auto text = impl.Decode({&id, 1}, /*keep_special=*/true);
    assembler_.Push(text.ok() ? std::string_view(*text) : impl.BytesOf(token), out);
  } else {
    assembler_.Push(impl.BytesOf(token), out);
  }
  first_ = false;
  if (strip_spaces_ == 0 || out->empty()) return;
  // Only the spaces that the text begins with: anything else ends the search.
  const size_t spaces = std::min(out->find_first_not_of(' '), out->size());
  const size_t dropped = std::min<size_t>(spaces, strip_spaces_);
  strip_spaces_ = spaces == out->size() ? strip_spaces_ - static_cast<uint32_t>(dropped) : 0;
  out->erase(0, dropped);
}

void Detokenizer::PushWindow(TokenId token, std::string* out) {
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  window_.push_back(static_cast<uint32_t>(token.value()));
  auto text = impl.Decode(window_, /*keep_special=*/true);
  if (!text.ok()) return;
  const bool incomplete = text->size() > emitted_text_.size() && text->ends_with(kReplacement);
  if (incomplete && window_.size() - emitted_tokens_ < kMaxWaitingTokens) return;
  *out = text->substr(std::min(text->size(), emitted_text_.size()));
  if (window_.size() > 2 * kContextTokens) {
    window_.erase(window_.begin(), window_.end() - kContextTokens);
    text = impl.Decode(window_, /*keep_special=*/true);
    if (!text.ok()) return;
  }
  emitted_tokens_ = window_.size();
  emitted_text_ = *std::move(text);
}

std::string Detokenizer::Flush() {
  std::string out;
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  if (impl.join != BATON_TEXT_JOIN_OPAQUE) {
    assembler_.Flush(&out);
    return out;
  }
  if (window_.size() == emitted_tokens_) return out;
  auto text = impl.Decode(window_, /*keep_special=*/true);
  if (text.ok()) out = text->substr(std::min(text->size(), emitted_text_.size()));
  emitted_tokens_ = window_.size();
  return out;
}

}  // namespace baton::text
