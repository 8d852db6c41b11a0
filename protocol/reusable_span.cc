#include "protocol/reusable_span.h"

#include <fmt/format.h>

namespace baton::kv {
namespace {

// Tokens before those of the span.
int64_t Before(const ReusableSpan& span) { return span.begin > 0 ? 1 : 0; }

}  // namespace

absl::Status CheckReusable(std::span<const ReusableSpan> spans, int64_t prompt_tokens, const char* field) {
  if (std::ssize(spans) > kMaxReusableSpans) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} spans, at most {} are allowed", field, spans.size(), kMaxReusableSpans));
  }
  int64_t behind = 0;  // the last one
  for (size_t i = 0; i < spans.size(); ++i) {
    const ReusableSpan& span = spans[i];
    const auto invalid = [&](std::string_view why) {
      return absl::InvalidArgumentError(
          fmt::format("{}[{}]: tokens [{}, {}) {}", field, i, span.begin, span.end, why));
    };
    if (span.begin < behind) return invalid("begin before the end of the span before");
    if (span.tokens() < kLeastReusableTokens) {
      return invalid(fmt::format("are fewer than {}: mark no such span", kLeastReusableTokens));
    }
    if (span.end >= prompt_tokens) {
      return invalid(fmt::format(
          "reach to the end of a prompt of {} or beyond: at least one token has to follow", prompt_tokens));
    }
    behind = span.end;
  }
  return absl::OkStatus();
}

int64_t CanonicalBlocks(const ReusableSpan& span) { return (Before(span) + span.tokens()) / kBlockTokens; }

std::vector<TokenId> CanonicalTokens(const ReusableSpan& span, std::span<const TokenId> prompt) {
  std::vector<TokenId> tokens;
  const int64_t size = CanonicalBlocks(span) * kBlockTokens;
  tokens.reserve(static_cast<size_t>(size));
  if (Before(span) > 0) tokens.push_back(prompt.front());
  const auto own = prompt.subspan(static_cast<size_t>(span.begin), static_cast<size_t>(size - Before(span)));
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

int64_t CanonicalPosition(const ReusableSpan& span, int64_t position) {
  return position - span.begin + Before(span);
}

ReusableSpan LandedPart(const ReusableSpan& span) {
  return {span.begin + kLeadTokens, span.begin + CanonicalBlocks(span) * kBlockTokens - Before(span)};
}

int64_t LandedTokens(std::span<const ReusableSpan> spans) {
  int64_t tokens = 0;
  for (const ReusableSpan& span : spans) tokens += LandedPart(span).tokens();
  return tokens;
}

}  // namespace baton::kv
