// Reusable parts: where in a prompt the parts of a conversation lie that the client marked so
// (v1::ContentPart.reusable). A part's border is found as that of a cache mark is (cache_marks.h): where the
// prompt parts from those of probes that go on otherwise. So a token that holds text of both sides of a
// border belongs to what follows. Pure functions, any thread.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "baton/v1/inference.pb.h"
#include "common/base/ids.h"
#include "protocol/reusable_span.h"
#include "router/api/cache_marks.h"

namespace baton::router {

// Each takes two renderings at most, and prompts are long.
inline constexpr int kMaxReusableParts = 64;

// INVALID_ARGUMENT: too many.
absl::Status CheckReusableParts(const v1::Conversation& conversation);

// The spans of the marked parts of a conversation whose prompt is `prompt`: those that kv::CheckReusable
// takes. A part that is too short, or whose probes the template refuses, is not marked. CANCELLED if a
// rendering is.
absl::StatusOr<std::vector<kv::ReusableSpan>> ReusablePartsOf(std::span<const TokenId> prompt,
                                                              const v1::Conversation& conversation,
                                                              const RenderTokens& render);

// As they travel.
std::vector<kv::ReusableSpan> ReusableSpansOf(const baton::fleet::v1::DecodeRequest& request);

}  // namespace baton::router
