#include "engine/reused_spans.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {

ReusedSpans::ReusedSpans(Engine& engine, const kv::PromptChain& chain, std::span<const TokenId> prompt)
    : engine_(&engine), chain_(kv::CanonicalRoot(chain.root())), prompt_tokens_(std::ssize(prompt)) {
  spans_.reserve(chain.spans().size());
  for (const kv::ReusableSpan& span : chain.spans()) {
    Span& own = spans_.emplace_back();
    own.span = span;
    own.landed = kv::LandedPart(span);
    own.canonical = kv::CanonicalTokens(span, prompt);
    own.hashes = chain_.Hashes(own.canonical);
  }
}

int64_t ReusedSpans::LandedOf(const Span& span, int64_t from, int64_t canonical) {
  const int64_t begin = std::max(from, span.landed.begin);
  if (begin >= span.landed.end) return 0;
  return std::max<int64_t>(0, canonical - kv::CanonicalPosition(span.span, begin));
}

int64_t ReusedSpans::CachedTokens(int64_t from) const {
  int64_t tokens = 0;
  for (size_t i = At(from); i < spans_.size(); ++i) {
    const int64_t cached = engine_->pool().MatchPrefix(spans_[i].hashes) * kBlockTokens;
    tokens += LandedOf(spans_[i], from, cached);
  }
  return tokens;
}

absl::Status ReusedSpans::Reserve(int64_t computed) {
  for (size_t i = At(computed); i < spans_.size(); ++i) {
    Span& span = spans_[i];
    BATON_CHECK(span.kv == nullptr);
    span.kv = std::make_unique<SequenceKv>(engine_->pool(), chain_);
    if (absl::Status reserved = span.kv->ReserveWhole(span.canonical); !reserved.ok()) {
      Release();
      return reserved;
    }
    span.found = span.kv->cached_tokens();
    span.next = std::max(computed, span.landed.begin);
  }
  return absl::OkStatus();
}

void ReusedSpans::Release() {
  for (Span& span : spans_) span.kv = nullptr;
}

int64_t ReusedSpans::FoundTokens(int64_t from) const {
  int64_t tokens = 0;
  for (const Span& span : spans_) tokens += LandedOf(span, from, span.found);
  return tokens;
}

int64_t ReusedSpans::remaining() const {
  int64_t rows = 0;
  for (size_t i = 0; i < spans_.size(); ++i) rows += remaining(i);
  return rows;
}

int64_t ReusedSpans::remaining(size_t span) const {
  const Span& at = spans_[span];
  return at.kv == nullptr ? 0 : std::ssize(at.canonical) - at.kv->computed_tokens();
}

int64_t ReusedSpans::computed(size_t span) const { return spans_[span].kv->computed_tokens(); }

size_t ReusedSpans::NextMissing(size_t span) const {
  while (span < spans_.size() && remaining(span) == 0) ++span;
  return span;
}

BatchRows ReusedSpans::RowsOf(size_t span, int64_t rows) const {
  const Span& at = spans_[span];
  const int64_t first = at.kv->computed_tokens();
  return {.tokens = std::span(at.canonical).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
          .first_position = first,
          .blocks = at.kv->blocks(),
          .logit_rows = 0};
}

void ReusedSpans::Computed(size_t span, int64_t rows) {
  Span& at = spans_[span];
  at.kv->Computed(at.canonical, at.kv->computed_tokens() + rows);
}

size_t ReusedSpans::At(int64_t position) const {
  const auto found = std::partition_point(
      spans_.begin(), spans_.end(), [position](const Span& span) { return span.landed.end <= position; });
  return static_cast<size_t>(found - spans_.begin());
}

int64_t ReusedSpans::EndOfRows(int64_t position) const {
  const size_t at = At(position);
  return at == spans_.size() ? prompt_tokens_ : std::max(position, spans_[at].landed.begin);
}

int64_t ReusedSpans::OwnRows(int64_t position) const {
  int64_t rows = prompt_tokens_ - position;
  for (size_t i = At(position); i < spans_.size(); ++i) {
    rows -= spans_[i].landed.end - std::max(position, spans_[i].landed.begin);
  }
  return rows;
}

int64_t ReusedSpans::SkipLanded(int64_t position) const {
  const size_t at = At(position);
  if (at == spans_.size() || position < spans_[at].landed.begin) return position;
  return spans_[at].next == spans_[at].landed.end ? spans_[at].landed.end : position;
}

int64_t ReusedSpans::Land(int64_t most, std::span<const BlockId> blocks) {
  const auto ready = std::ranges::find_if(spans_, [](const Span& span) {
    return span.kv != nullptr && span.kv->computed_tokens() == std::ssize(span.canonical);
  });
  if (ready == spans_.end()) return 0;
  const int64_t tokens = std::min(most, ready->landed.end - ready->next);
  engine_->Land({.from = ready->kv->blocks(),
                 .from_position = kv::CanonicalPosition(ready->span, ready->next),
                 .to = blocks,
                 .to_position = ready->next,
                 .tokens = tokens});
  ready->next += tokens;
  if (ready->next == ready->landed.end) ready->kv = nullptr;
  return tokens;
}

}  // namespace baton::engine
