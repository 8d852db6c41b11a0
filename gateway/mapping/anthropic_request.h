// What Anthropic's Messages API asks for, as requests of baton.v1. Fields that are not known are ignored and
// named. Pure functions, any thread. Source: its API reference (messages, count_tokens).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

struct AnthropicMessages {
  v1::ChatRequest request;
  bool stream = false;
  std::vector<std::string> ignored;
};

absl::StatusOr<AnthropicMessages> ReadAnthropicMessages(const Json& body);

// The same body without max_tokens.
absl::StatusOr<v1::TokenizeRequest> ReadAnthropicCount(const Json& body);

}  // namespace baton::gateway
