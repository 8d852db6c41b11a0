// A Conversation as the variables that Hugging Face chat templates read: messages with role, content,
// reasoning_content, tool_calls ({type, id, function: {name, arguments}}) and tool_call_id; tools as {type,
// function: {name, description, parameters}}; add_generation_prompt, enable_thinking and what the caller
// adds. Pure functions.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "nlohmann/json.hpp"

namespace baton::router {

// INVALID_ARGUMENT naming the field: no messages, a message without a role, a tool or a call without a name
// or with JSON that is no object, a template argument that would replace one of the above.
absl::Status CheckConversation(const v1::Conversation& conversation);

// Of a conversation that passed CheckConversation.
nlohmann::ordered_json TemplateVariables(const v1::Conversation& conversation);

}  // namespace baton::router
