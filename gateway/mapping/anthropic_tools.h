// Tools of Anthropic's Messages API: the client's own, and those of a type that its models know by heart and
// the client runs (a shell, an editor of files, a memory), which other models are told here. What runs on the
// vendor's servers is INVALID_ARGUMENT. Source: the API reference of Anthropic (tools; bash, text editor and
// memory tool). Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// The text by which a conversation describes a tool, as most templates write those in its beginning; nothing:
// there is none of that name.
std::optional<std::string> DescriptionOf(const v1::Conversation& conversation, std::string_view tool);

// The member `tools`.
absl::Status ReadAnthropicTools(JsonObject& body, v1::Conversation* conversation);
// The member `tool_choice`, of a request whose tools have been read.
absl::Status ReadAnthropicToolChoice(JsonObject& body, v1::ChatRequest* request);

}  // namespace baton::gateway
