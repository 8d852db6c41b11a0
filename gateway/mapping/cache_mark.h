// Texts of messages and their cache marks, as Anthropic's clients write them, and those of OpenAI's that
// proxies have taught the same: the member `cache_control` of a block, a part or a tool. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// {"type": "ephemeral", "ttl": "5m" or "1h"}; absent: no mark.
absl::StatusOr<std::optional<v1::CacheMark>> ReadMark(JsonObject& block);

// The member `reusable` of a part or block (v1::ContentPart.reusable), which is ours.
absl::StatusOr<bool> ReadReusable(JsonObject& block);

// Appends a text to a message, as its content as long as there are no marks in it.
void AddText(const std::string& text, const std::optional<v1::CacheMark>& mark, v1::Message* message,
             bool reusable = false);

// The text that stands for a part of this type which the model can't read, so that a conversation goes on.
std::string StandIn(std::string_view type);

}  // namespace baton::gateway
