// What OpenAI's HTTP API asks for, as requests of baton.v1. A field that is not known is ignored and named;
// one that is known, would change what the answer means, and is not there is INVALID_ARGUMENT. Extra fields
// are those of vLLM's server, by its names. Pure functions, any thread. Source: the API reference of OpenAI
// (chat, completions).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// How the answer is wanted.
struct OpenAiAnswer {
  bool stream = false;
  // A last chunk with the usage.
  bool usage = false;
  // Members of the body that were ignored.
  std::vector<std::string> ignored;
};

struct OpenAiChat {
  v1::ChatRequest request;
  OpenAiAnswer answer;
};
absl::StatusOr<OpenAiChat> ReadOpenAiChat(const Json& body);

struct OpenAiCompletion {
  v1::GenerateRequest request;
  OpenAiAnswer answer;
  // The prompt's text comes before the answer.
  bool echo = false;
};
absl::StatusOr<OpenAiCompletion> ReadOpenAiCompletion(const Json& body);

// {"model", "prompt"} or {"model", "messages"}, and {"model", "tokens"}, as vLLM's server has them.
absl::StatusOr<v1::TokenizeRequest> ReadTokenize(const Json& body);
absl::StatusOr<v1::DetokenizeRequest> ReadDetokenize(const Json& body);

}  // namespace baton::gateway
