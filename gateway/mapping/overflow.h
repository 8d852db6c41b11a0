// The treatment of prompts that are too long: the member `overflow`, which is ours, of all HTTP APIs, and
// Anthropic's `context_management` (its API reference, context editing). INVALID_ARGUMENT names the member.
// Pure functions, any thread.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// "drop_oldest", or {"mode": "drop_oldest", "keep": 0.5, ...}: v1::Overflow in JSON, whose modes are in small
// letters without MODE_. Absent: `otherwise`. A max_tokens beyond the context is cut whatever it says, but
// for "refuse".
absl::Status ReadOverflow(JsonObject& body, v1::Overflow::Mode otherwise, v1::Overflow* overflow);

// {"edits": [...]}: clear_tool_uses_20250919 is an overflow whose window is the edit's trigger;
// clear_thinking_20251015 takes thinking out of the conversation here and now. Edits that can't be applied
// are ignored. Before ReadOverflow.
absl::Status ReadContextEdits(JsonObject& body, v1::ChatRequest* request);

}  // namespace baton::gateway
