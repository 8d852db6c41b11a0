// ReusableSpan: tokens of a prompt whose KV may be used wherever they stand (v1::ReusableSpan), and the
// arithmetic of it: what of a span is landed, which is to say taken from the KV of its canonical sequence,
// and what that sequence is. All of it is a function of the request, never of what is cached.
// docs/chunk-reuse.md tells the whole. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"

namespace baton::kv {

// Tokens [begin, end) of a prompt.
struct ReusableSpan {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t tokens() const { return end - begin; }
  friend bool operator==(const ReusableSpan&, const ReusableSpan&) = default;
};

inline constexpr int kMaxReusableSpans = 256;
inline constexpr int64_t kLeastReusableTokens = 2 * kBlockTokens;
// The first tokens of a span, which attend to everything before them.
inline constexpr int64_t kLeadTokens = kBlockTokens;

// INVALID_ARGUMENT, naming `field`: too many, one that is too short, out of order, or not followed by a token
// of the prompt.
absl::Status CheckReusable(std::span<const ReusableSpan> spans, int64_t prompt_tokens, const char* field);

// The canonical sequence of a span: the prompt's first token, unless the span begins with it, and the span's
// tokens; full blocks only.
int64_t CanonicalBlocks(const ReusableSpan& span);
std::vector<TokenId> CanonicalTokens(const ReusableSpan& span, std::span<const TokenId> prompt);
// Where the prompt's token `position`, which lies in the span, stands in it.
int64_t CanonicalPosition(const ReusableSpan& span, int64_t position);

// The part of a span whose KV is landed. Never empty.
ReusableSpan LandedPart(const ReusableSpan& span);
// The landed tokens of all spans together.
int64_t LandedTokens(std::span<const ReusableSpan> spans);

}  // namespace baton::kv
