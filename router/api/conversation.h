// A Conversation as the variables that Hugging Face chat templates read: messages with role, content,
// reasoning_content, tool_calls ({type, id, function: {name, arguments}}) and tool_call_id; tools as {type,
// function: {name, description, parameters}}; add_generation_prompt, enable_thinking and what the caller
// adds. Time and memory are linear in the conversation's bytes, and what its parts cost is bounded before
// they are made. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "nlohmann/json_fwd.hpp"
#include "text/output/probe_chat.h"

namespace baton::router {

// INVALID_ARGUMENT naming the field: no messages, a message without a role, a tool or a call without a name,
// a template argument that would replace one of the above, nothing that could be continued. Looks into no
// JSON, so it costs little.
absl::Status CheckConversation(const v1::Conversation& conversation);

// The text of a message: its content, or that of its parts.
std::string ContentOf(const v1::Message& message);
// True if the message belongs to the instructions that a conversation begins with.
bool IsSystem(const v1::Message& message);

// The conversation has passed CheckConversation. INVALID_ARGUMENT naming the field: parameters of a tool
// that are no JSON object, or that the strict reader of common/json refuses (a key that stands twice, too
// deep); or more than `max_parts` messages, tools, calls and JSON values together. Each of them takes at
// least one token, so the model's context is a bound that no conversation of use meets. calls: how the
// template takes earlier calls; arguments as text are the client's. Arguments that are no such object are the
// text that they are if raw_arguments (output::HistoryStyle), else an object that has it as "arguments". A
// tool's message has the name of the call that it answers.
absl::StatusOr<nlohmann::ordered_json> TemplateVariables(const v1::Conversation& conversation,
                                                         int64_t max_parts,
                                                         const output::CallStyle& calls = {},
                                                         bool raw_arguments = false);

// Adds what a request says of thinking to the variables of its conversation: enable_thinking and thinking,
// which templates use for the same, and reasoning_effort. A variable `thinking` of the caller's own stays.
void AddThinking(const v1::Thinking& thinking, nlohmann::ordered_json* variables);

}  // namespace baton::router
