// Requests of OpenAI's Responses API (POST /v1/responses), as requests of Chat. It is served without a
// memory: the whole conversation comes with each request, and nothing is kept. What would need a memory is
// INVALID_ARGUMENT; the rest is as in openai_request.h. Pure functions, any thread. Source: the API reference
// of OpenAI (responses).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"
#include "gateway/mapping/responses_tools.h"

namespace baton::gateway {

// How the answer is written.
struct ResponsesAnswer {
  bool stream = false;
  // Thinking stands in the summary of its item in place of its content: all of it, not a shorter text.
  bool summary = false;
  // Items of thinking carry their text in encrypted_content too, for clients that send nothing else back.
  bool encrypted = false;
  // The members that repeat the request, in the API's order.
  Json echo = Json::object();
  ToolNames names = {};
  // Members of the body that were ignored.
  std::vector<std::string> ignored = {};
};

struct ResponsesRequest {
  v1::ChatRequest request;
  ResponsesAnswer answer;
};
absl::StatusOr<ResponsesRequest> ReadResponses(const Json& body);

}  // namespace baton::gateway
