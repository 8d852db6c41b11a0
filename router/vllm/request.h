// A request of vLLM's protocol as one of ours. What has no counterpart here is refused by its name: nothing
// is ignored. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "vllm/inference.pb.h"

namespace baton::router::vllm {

// The names of requests are kept while these run.
inline constexpr size_t kMaxRequestId = 256;

// Content of an answer's messages.
struct AnswerShape {
  bool text = true;
  bool token_ids = false;
  bool logprobs = false;
  bool candidates = false;
  std::vector<uint32_t> prompt;  // its tokens, if they are to come back
  std::vector<int32_t> stops;    // stop_token_ids: other tokens that end an answer are the model's own
};

struct Request {
  std::string id;  // the client's name for it; empty: none
  v1::GenerateRequest request;
  AnswerShape shape;
};

// INVALID_ARGUMENT begins with the field. `stream`: more than one message can answer it.
absl::StatusOr<Request> ReadRequest(const ::vllm::GenerateRequest& request, bool stream);

}  // namespace baton::router::vllm
