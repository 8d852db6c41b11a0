// TokenCounts: what a request, or one of its choices, used, in tokens by kind. Every token of the prompt is
// in exactly one kind, so the kinds of the prompt add up to it by construction. Plain data.
#pragma once

#include <cstdint>

namespace baton::router::billing {

struct TokenCounts {
  // Tokens of the prompt. KV found in or fetched by the decode worker; found by the prefill worker, and not
  // by the decode worker; computed and kept for at least five minutes or an hour by request; computed.
  int64_t decode_cached = 0;
  int64_t prefill_cached = 0;
  int64_t written_5m = 0;
  int64_t written_1h = 0;
  int64_t plain = 0;
  // Tokens of the answer, and of these the tokens of thinking.
  int64_t completion = 0;
  int64_t thinking = 0;
  // Tokens that decode workers drafted for the answer, and of these the ones that became part of it. They are
  // in no other count and cost nothing.
  int64_t drafted = 0;
  int64_t accepted = 0;

  int64_t cached() const { return decode_cached + prefill_cached; }
  int64_t prompt() const { return cached() + written_5m + written_1h + plain; }

  bool operator==(const TokenCounts&) const = default;
};

}  // namespace baton::router::billing
