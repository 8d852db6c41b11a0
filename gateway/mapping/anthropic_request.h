// Requests of Anthropic's Messages API, as requests of baton.v1. Fields that are not known are ignored and
// named. Pure functions, any thread. Source: its API reference (messages, count_tokens, structured outputs).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/anthropic_answer.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// Options of the operator.
struct AnthropicRules {
  // The line with which Claude Code begins its system prompt (x-anthropic-billing-header) differs with every
  // request, so that no prefix would ever be found in the cache, and says nothing to a model: it is left out.
  bool drop_billing_header = true;
};

struct AnthropicMessages {
  v1::ChatRequest request;
  AnthropicAnswer answer;
  std::vector<std::string> ignored;
};

absl::StatusOr<AnthropicMessages> ReadAnthropicMessages(const Json& body, const AnthropicRules& rules = {});

// The same body without max_tokens. ignored: is set to the members of the body that were; null: nobody asks.
absl::StatusOr<v1::CountTokensRequest> ReadAnthropicCount(const Json& body, const AnthropicRules& rules = {},
                                                          std::vector<std::string>* ignored = nullptr);

}  // namespace baton::gateway
