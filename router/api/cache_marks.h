// Cache marks: where in a prompt the marks of a request lie (v1::CacheMark), and the leases that ask workers
// to keep what is before them (baton::fleet::v1::CacheLease). A mark in a conversation is a position in what
// the client wrote; its position in the prompt follows from the template. It is where the prompt parts from
// that of a probe: a conversation that is the same up to the mark, and then goes on otherwise. So a mark
// covers exactly what a later conversation can find again under this template, and a template that rewrites
// history needs no rules of its own. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/generation.pb.h"
#include "baton/v1/inference.pb.h"
#include "common/base/ids.h"

namespace baton::router {

// A request's bound, for its conversation and its options together.
inline constexpr int kMaxCacheMarks = 8;

// INVALID_ARGUMENT naming the field: too many marks, a TTL that is none, a message with both content and
// parts.
absl::Status CheckCacheMarks(const v1::Conversation& conversation, const v1::RequestOptions& options);
absl::Status CheckCacheMarks(const v1::RequestOptions& options);

struct MarkProbe {
  v1::CacheTtl ttl = v1::CACHE_TTL_5M;
  // The conversation up to the mark, and how it could go on, the likeliest first. A template that wants turns
  // to alternate may refuse one of them.
  std::vector<v1::Conversation> conversations;
};

// The conversation up to byte `offset` of a message's content, and how it could go on, the likeliest first.
std::vector<v1::Conversation> ProbesAt(const v1::Conversation& conversation, int message, size_t offset);

// A probe for each mark in the conversation.
std::vector<MarkProbe> MarkProbes(const v1::Conversation& conversation);

// The tokens of a conversation's prompt.
using RenderTokens =
    std::function<absl::StatusOr<std::vector<TokenId>>(const v1::Conversation& conversation)>;

// The leases that the marks of a request ask for: at most one of each class, each from the start of the
// prompt and in whole blocks, with ascending tokens. Of a prompt of so many tokens, with the mark in its
// options alone:
std::vector<baton::fleet::v1::CacheLease> LeasesOf(int64_t prompt_tokens, const v1::RequestOptions& options);
// The leases of a conversation whose prompt is `prompt`. A mark whose probes the template refuses covers
// nothing. At most two renderings a mark; CANCELLED if one is.
absl::StatusOr<std::vector<baton::fleet::v1::CacheLease>> LeasesOf(std::span<const TokenId> prompt,
                                                                   const v1::Conversation& conversation,
                                                                   const v1::RequestOptions& options,
                                                                   const RenderTokens& render);

}  // namespace baton::router
